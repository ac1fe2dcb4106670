"""Read, write, record and judge traces: every named value of a model's forward pass.

>>> import lockstep
>>> trace = lockstep.open_trace("snow.trace")
>>> trace["blk.0.q"].shape            # [positions, width]
(29, 64)
>>> trace.row("logits", 12).argmax()  # one position
400
"""

from ._dtypes import bfloat16_to_float32, float32_to_bfloat16
from ._judge import Comparison, Diagnosis, Generation, assert_parity, compare, doctor, run
from ._model import Model, open_model
from ._program import LockstepError, find_program
from ._reader import Checkpoint, Step, Trace, TraceError, open_trace
from ._record import Recording, record
from ._suite import SuiteResults, check
from ._writer import TraceWriter

__all__ = [
    "Checkpoint",
    "Comparison",
    "Diagnosis",
    "Generation",
    "LockstepError",
    "Model",
    "Recording",
    "Step",
    "SuiteResults",
    "Trace",
    "TraceError",
    "TraceWriter",
    "assert_parity",
    "bfloat16_to_float32",
    "check",
    "compare",
    "doctor",
    "find_program",
    "float32_to_bfloat16",
    "open_model",
    "open_trace",
    "record",
    "run",
]
__version__ = "0.1.0"
