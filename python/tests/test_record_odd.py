"""`lockstep.record` on modules that do odd things: what it cannot record rightly it leaves out, and says so."""

import dataclasses
import os
import tempfile
import threading
import unittest
import unittest.mock
import warnings
from pathlib import Path

import numpy as np

import lockstep

# Some machines announce AMX, which is above this, and stop a program at its first tile instruction.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
try:
    import torch
    from torch import nn
    from torch.utils.checkpoint import checkpoint
except ImportError:
    torch = None

WIDTH, VOCABULARY, LAYERS = 12, 29, 3

if torch is not None:

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.turn = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)

        def forward(self, x):
            return x + self.turn(self.norm(x))

    class Net(nn.Module):
        def __init__(self, blocks=None, outputs=VOCABULARY):
            super().__init__()
            self.embed = nn.Embedding(VOCABULARY, WIDTH)
            self.layers = nn.ModuleList(blocks or [Block() for _ in range(LAYERS)])
            self.head = nn.Linear(WIDTH, outputs, bias=False)

        def run(self, x):
            for layer in self.layers:
                x = layer(x)
            return self.head(x)

        def forward(self, ids):
            return self.run(self.embed(ids))


@unittest.skipIf(torch is None, "torch is not installed")
class OddTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = Path(holder.name)
        self.seed = int.from_bytes(os.urandom(4), "little")
        torch.manual_seed(self.seed)
        self.count = 0

    def folder(self):
        self.count += 1
        return self.root / str(self.count)

    def record(self, model, call, **options):
        """The recording, its trace, and what the call gave."""
        with lockstep.record(model, self.folder(), **options) as recording:
            output = call()
        for module in model.modules():
            self.assertFalse(module._forward_hooks or module._forward_pre_hooks)
        trace = lockstep.open_trace(recording.folder)
        self.assertTrue(trace.complete)
        return recording, trace, output

    def ids(self, *shape):
        return torch.randint(0, VOCABULARY, shape)

    def same(self, trace, name, tensor):
        np.testing.assert_array_equal(trace[name], tensor.detach().reshape(-1, tensor.shape[-1]).numpy(), f"{name}, {self.seed}")

    def told(self, recording, *words):
        self.assertEqual([word for word in words if not any(word in note for note in recording.notes)], [], recording.notes)

    # Modules

    def test_one_block_as_every_layer(self):
        block = Block()
        model, ids = Net([block] * 4), self.ids(1, 5)
        recording, trace, logits = self.record(model, lambda: model(ids))
        x = model.embed(ids)
        for number in range(4):
            self.same(trace, f"layers.{number}.norm", block.norm(x))
            x = block(x)
            self.same(trace, f"blk.{number}.output", x)
        self.same(trace, "logits", logits)
        self.assertEqual(recording.notes, [])

    def test_a_module_that_is_called_again_is_told(self):
        class Loop(Net):
            def run(self, x):
                for _ in range(3):
                    x = self.layers[0](x)
                self.last = x
                return self.head(x)

        model, ids = Loop(), self.ids(1, 5)
        recording, trace, _ = self.record(model, lambda: model(ids))
        self.same(trace, "blk.0.output", model.last)
        self.told(recording, "computed several times in a pass, and recorded as they were the last time: layers.0.norm, ")

    def test_another_name_before_that_of_the_layers(self):
        class Alias(Net):
            def __init__(self):
                super().__init__()
                layers, self.layers = self.layers, None
                self.first, self.layers = layers[0], layers

        model, ids = Alias(), self.ids(1, 5)
        _, trace, _ = self.record(model, lambda: model(ids))
        self.same(trace, "blk.0.output", model.first(model.embed(ids)))
        self.assertIn("layers.0.norm", trace)

    def test_what_modules_return(self):
        @dataclasses.dataclass
        class Output:
            hidden: object
            rest: object = None

        class Returns(nn.Module):
            def __init__(self, form):
                super().__init__()
                self.turn, self.form = nn.Linear(WIDTH, WIDTH), form

            def forward(self, x):
                self.value = self.turn(x)
                return self.form(self.value)

        class Outer(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed = nn.Embedding(VOCABULARY, WIDTH)
                forms = (Output, lambda x: {"none": None, "hidden": x}, lambda x: (None, [x]), lambda _: None)
                self.layers = nn.ModuleList([Returns(form) for form in forms])
                self.head = nn.Linear(WIDTH, VOCABULARY)

            def forward(self, ids):
                x = self.embed(ids)
                for layer in self.layers:
                    layer(x)
                    x = layer.value
                return Output(self.head(x))

        model, ids = Outer(), self.ids(1, 5)
        _, trace, output = self.record(model, lambda: model(ids))
        for number in range(3):
            self.same(trace, f"blk.{number}.output", model.layers[number].value)
        self.assertNotIn("blk.3.output", trace)
        self.same(trace, "logits", output.hidden)

    def test_an_encoder_and_a_decoder(self):
        class Both(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed = nn.Embedding(VOCABULARY, WIDTH)
                self.encoder = nn.ModuleList([Block() for _ in range(4)])
                self.decoder = nn.ModuleList([Block() for _ in range(2)])
                self.head = nn.Linear(WIDTH, VOCABULARY)

            def forward(self, input_ids, decoder_input_ids, attention_mask=None):
                x, y = self.embed(input_ids), self.embed(decoder_input_ids)
                for layer in self.encoder:
                    x = layer(x)
                for layer in self.decoder:
                    y = layer(y + x.mean(1, keepdim=True))
                return self.head(y)

        model = Both()
        for read, written in ((7, 3), (3, 7), (4, 4)):
            ids, own = self.ids(1, read), self.ids(1, written)
            recording, trace, logits = self.record(model, lambda ids=ids, own=own: model(ids, own, torch.ones_like(ids)))
            self.assertEqual(trace.tokens.tolist(), own[0].tolist())
            self.same(trace, "logits", logits)
            self.assertEqual([name for name in trace if "blk" in name], ["blk.0.output", "blk.1.output"])
            self.told(recording, "the decoder is recorded")

    def test_wrappers(self):
        class Wrapper(nn.Module):
            def __init__(self, module):
                super().__init__()
                self.inner = module

            def generate(self, ids):
                return self.inner(ids)

            def forward(self, ids):
                return self.inner(ids)

        inner, ids = Net(), self.ids(1, 5)
        model = Wrapper(Wrapper(inner))
        for call in (lambda: model(ids), lambda: model.inner.generate(ids)):  # one never calls the outermost module
            _, trace, logits = self.record(model, call)
            self.same(trace, "logits", logits)
            self.assertEqual(len(trace.steps), 1)
            self.assertIn("blk.2.output", trace)

    def test_names_without_those_of_torchs_wrappers(self):
        class Checkpointed(nn.Module):
            def __init__(self):
                super().__init__()
                self._checkpoint_wrapped_module = Block()

            def forward(self, x):
                return self._checkpoint_wrapped_module(x)

        model, ids = Net([Checkpointed() for _ in range(2)]), self.ids(1, 5)
        names = {"layers.{N}.norm": "blk.{N}.attn_norm", "layers.{N}": "blk.{N}.output"}
        _, trace, _ = self.record(model, lambda: model(ids), names=names)
        self.assertEqual([name for name in trace if "blk" in name],
                         [f"blk.{n}.{leaf}" for n in range(2) for leaf in ("attn_norm", "output")])  # fmt: skip

    def test_a_part_that_torch_jit_compiled(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            part = torch.jit.script(Block())
        model, ids = Net([Block(), part, Block()]), self.ids(1, 5)
        with lockstep.record(model, self.folder()) as recording:
            model(ids)
        trace = lockstep.open_trace(recording.folder)
        self.assertEqual([name for name in trace if "blk" in name], ["blk.0.output", "blk.2.output"])
        self.told(recording, "torch.jit compiled call no hooks and were not recorded: layers.1")
        self.assertEqual(trace.manifest["unmapped"], ["layers.1", "layers.1.norm", "layers.1.turn"])

    def test_logits_that_nobody_tells(self):
        model, ids = Net(outputs=VOCABULARY + 3), self.ids(1, 5)  # a vocabulary that was made larger
        recording, trace, logits = self.record(model, lambda: model(ids))
        self.told(recording, "no logits were recorded; names= tells which module gives them")
        self.same(trace, "head", logits)
        recording, trace, logits = self.record(model, lambda: model(ids), names={"head": "logits"})
        self.same(trace, "logits", logits)
        self.assertEqual(recording.notes, [])

    def test_what_was_compiled_in_other_ways(self):
        def whole(model):
            model.forward = torch.compile(model.forward, backend="eager")
            return model

        def part(model):
            model.layers[1].forward = torch.compile(model.layers[1].forward, backend="eager")
            return model

        def around(model):
            return torch.compile(lambda ids: model(ids), backend="eager")

        ids = self.ids(1, 5)
        for way in (whole, part, around):
            model = Net()
            call = way(model)
            with self.subTest(way=way.__name__), torch.no_grad():
                before = call(ids)  # compiled once without hooks
                recording, trace, logits = self.record(model, lambda call=call: call(ids))
                self.same(trace, "logits", logits)
                self.assertIn("layers.1.norm", trace)
                self.told(recording, "breaks a graph")
                torch.testing.assert_close(call(ids), before)

    # Calls

    def test_gradient_checkpointing(self):
        class Saving(Net):
            def run(self, x):
                for layer in self.layers:
                    x = checkpoint(layer, x, use_reentrant=False)
                return self.head(x)

        model, ids = Saving(), self.ids(2, 5)
        names = {"layers.{N}.norm": {"checkpoint": "blk.{N}.q_rope", "order": "adjacent"}}  # work in the hook itself
        gradients = []
        for watched in (False, True):
            model.zero_grad()
            if watched:
                _, trace, _ = self.record(model, lambda: model(ids).sum().backward(), names=names, heads=2)
            else:
                model(ids).sum().backward()
            gradients.append([parameter.grad.clone() for parameter in model.parameters()])
        for one, other in zip(*gradients):
            torch.testing.assert_close(one, other, rtol=0, atol=0)
        self.assertEqual(len(trace.steps), 1)

    def test_a_part_that_is_called_after_the_pass(self):
        model, ids = Net(), self.ids(1, 5)

        def call():
            logits = model(ids)
            model.head(torch.ones(1, 5, WIDTH))
            return logits

        recording, trace, logits = self.record(model, call)
        self.same(trace, "logits", logits)
        self.same(trace, "head", logits)

    def test_a_pass_that_fails(self):
        model, ids = Net(), self.ids(1, 5)
        handle = model.layers[1].register_forward_pre_hook(lambda *_: 1 / 0)
        with lockstep.record(model, self.folder()) as recording:
            with self.assertRaises(ZeroDivisionError):
                model(ids)
            handle.remove()
        self.assertEqual(len(lockstep.open_trace(recording.folder).steps), 0)
        self.told(recording, "a call of the module that raised an exception was not recorded")

    def test_a_pass_that_is_interrupted(self):
        """KeyboardInterrupt calls none of torch's hooks."""
        for again in (False, True):
            model, ids, more = Net(), self.ids(1, 5), self.ids(1, 1)
            handle = model.layers[1].register_forward_pre_hook(self.interrupt)
            with lockstep.record(model, self.folder()) as recording:
                with self.assertRaises(KeyboardInterrupt):
                    model(ids)
                handle.remove()
                logits = model(more) if again else None
            trace = lockstep.open_trace(recording.folder)
            self.assertEqual([step.tokens for step in trace.steps], [1] * again)
            self.told(recording, "a call of the module that raised an exception was not recorded")
            if again:
                self.same(trace, "logits", logits)

    @staticmethod
    def interrupt(*_):
        raise KeyboardInterrupt

    def test_an_exception_after_a_pass(self):
        model, ids, folder = Net(), self.ids(1, 5), self.folder()
        with self.assertRaises(KeyboardInterrupt), lockstep.record(model, folder):
            logits = model(ids)
            self.interrupt()
        trace = lockstep.open_trace(folder)
        self.assertFalse(trace.complete)
        self.same(trace, "logits", logits)

    @unittest.skipUnless(Path("/dev/full").exists(), "no file that is always full")
    def test_a_full_disk(self):
        def full(file, *rest, **named):
            return opened("/dev/full" if str(file).endswith("safetensors.part") else file, *rest, **named)

        model, opened = Net(), open
        for call in ("close", "with"):
            recording = lockstep.record(model, self.folder()).start()
            model(self.ids(1, 5))
            with unittest.mock.patch("builtins.open", full), self.assertRaisesRegex(OSError, "No space left"):
                recording.close() if call == "close" else recording.__exit__(None, None, None)
            self.assertFalse(recording.folder.exists())
            for module in model.modules():
                self.assertFalse(module._forward_hooks or module._forward_pre_hooks)

    def test_a_call_while_an_exception_is_handled(self):
        model, ids = Net(), self.ids(1, 5)

        def call():
            try:
                raise KeyError
            except KeyError:
                return model(ids)

        _, trace, logits = self.record(model, call)
        self.same(trace, "logits", logits)

    def test_threads(self):
        model, both = Net(), [self.ids(1, 5), self.ids(1, 5)]
        meet = threading.Barrier(2, timeout=60)

        def wait(*_):
            meet.wait()

        handle = model.layers[1].register_forward_pre_hook(wait)
        with lockstep.record(model, self.folder()) as recording:
            threads = [threading.Thread(target=model, args=(ids,)) for ids in both]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        handle.remove()
        trace = lockstep.open_trace(recording.folder)
        self.same(trace, "logits", model(torch.tensor(trace.tokens.tolist())[None]))
        self.same(trace, "blk.0.output", model.layers[0](model.embed(torch.tensor(trace.tokens.tolist())[None])))
        self.told(recording, "several threads called the module at once")

    def test_two_recordings_that_end_in_the_order_of_their_beginning(self):
        class Own(nn.Module):
            def __init__(self):
                super().__init__()
                self.model = nn.Module()
                self.model.layers = nn.ModuleList([nn.Module()])
                self.model.layers[0].self_attn = self.attention = Softmax()
                self.embed = nn.Embedding(VOCABULARY, 4)

            def forward(self, ids):
                return self.attention(self.embed(ids))

        class Softmax(nn.Module):
            def forward(self, x):
                return nn.functional.softmax(x[:, None] @ x[:, None].mT, -1)

        model, ids, original = Own(), self.ids(1, 5), nn.functional.softmax
        first, second = (lockstep.record(model, self.folder()).start() for _ in range(2))
        probabilities = model(ids)
        first.close()
        self.assertIsNot(nn.functional.softmax, original)
        second.close()
        self.assertIs(nn.functional.softmax, original)
        for recording in (first, second):
            trace = lockstep.open_trace(recording.folder)
            scores = trace.value("blk.0.attn_scores", 0)
            np.testing.assert_allclose(torch.tensor(np.array(scores)).softmax(-1), probabilities[0].detach(), rtol=1e-5)

    def test_arguments(self):
        class Named(Net):
            def forward(self, attention_mask=None, position_ids=None, inputs_embeds=None, labels=None, batch=None):
                return self.run(self.embed(batch["input_ids"]) if batch is not None else inputs_embeds)

        model, ids = Named(), self.ids(2, 4)
        rows, labels = torch.rand(2, 4, WIDTH), torch.full((2, 4), -100)
        for call in (lambda: model(torch.ones(2, 4), None, rows, labels), lambda: model(torch.ones(4, 4).tril(), None, rows[:1])):
            _, trace, logits = self.record(model, call)
            self.same(trace, "logits", logits[0])
            self.assertEqual(trace.tokens.tolist(), [])
        mask = torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1]])
        _, trace, logits = self.record(model, lambda: model(batch={"input_ids": ids, "attention_mask": mask}), sequence=1)
        self.same(trace, "logits", logits[1, 2:])
        self.assertEqual(trace.tokens.tolist(), ids[1, 2:].tolist())
        for mask in (torch.ones(4, 4).tril().bool(), torch.ones(1, 1, 4, 4).tril().bool()):
            _, trace, logits = self.record(model, lambda mask=mask: model(mask, batch={"input_ids": ids[:1]}))
            self.same(trace, "logits", logits)
        hidden = torch.full((1, 1, 4, 4), -1e9).triu(1)
        hidden[..., 0] = -1e9  # the first token is padding
        places = torch.tensor([[0, 0, 1, 2]])
        _, trace, logits = self.record(model, lambda: model(hidden, places, batch={"input_ids": ids[:1]}))
        self.same(trace, "logits", logits[0, 1:])

    def test_where_a_number_tells_the_position(self):
        class Start(Net):
            def forward(self, tokens, start_pos: int = 0):
                return self.run(self.embed(tokens))

        class Places(Net):
            def forward(self, tokens, input_pos):
                return self.run(self.embed(tokens))

        ids = self.ids(3, 7)
        later = [(ids[:, at : at + 1], at) for at in range(4, 7)]
        for model, given in (
            (Start(), [(ids[:, :4],), *later]),
            (Places(), [(ids[:, :4], torch.arange(4)), *((one, torch.tensor([1, at, 9])) for one, at in later)]),
        ):
            recording, trace, logits = self.record(
                model, lambda m=model, given=given: torch.cat([m(*one) for one in given], 1), sequence=1
            )
            self.assertEqual((trace.tokens.tolist(), trace.n_prompt), (ids[1].tolist(), 4))
            self.assertEqual([step.first_position for step in trace.steps], [0, 4, 5, 6])
            self.same(trace, "logits", logits[1])
            self.assertEqual(recording.notes, [])

    def test_where_nothing_tells_the_position(self):
        model, ids = Net(), self.ids(1, 5)
        recording, trace, logits = self.record(model, lambda: [model(ids), model(ids[:, :1])])
        self.same(trace, "logits", logits[0])
        self.told(recording, "is to be given positions too, by an argument such as position_ids or start_pos")

    def test_numbers_beside_rows(self):
        class Rows(Net):
            def forward(self, rows, lengths):
                return self.run(rows)

        model, rows = Rows(), torch.rand(3, 5, WIDTH)
        _, trace, logits = self.record(model, lambda: model(rows, torch.tensor([5, 4, 3])), sequence=2)
        self.same(trace, "logits", logits[2])
        ids = self.ids(5)
        _, trace, logits = self.record(model, lambda: model(rows[0], ids))
        self.assertEqual(trace.tokens.tolist(), ids.tolist())

    def test_a_cache_that_does_not_count(self):
        class States:
            def get_seq_length(self):
                raise ValueError("states alone")

        class Recurrent(Net):
            def forward(self, ids, cache_params=None):
                return self.run(self.embed(ids))

        model, ids, cache, other = Recurrent(), self.ids(1, 7), States(), States()
        recording, trace, logits = self.record(
            model, lambda: torch.cat([model(part, use) for part, use in
                                      ((ids[:, :5], cache), (self.ids(1, 4), other), (ids[:, 5:6], cache), (ids[:, 6:], cache))
                                      ], 1))  # fmt: skip
        self.assertEqual((trace.tokens.tolist(), trace.n_prompt), (ids[0].tolist(), 5))
        self.same(trace, "logits", torch.cat([logits[:, :5], logits[:, 9:]], 1))
        self.told(recording, "a trace holds one sequence")

    def test_a_recording_that_begins_late(self):
        class Start(Net):
            def forward(self, ids, start_pos):
                return self.run(self.embed(ids))

        model, ids = Start(), self.ids(1, 2)
        recording, trace, _ = self.record(model, lambda: [model(ids[:, :1], 6), model(ids[:, 1:], 7)])
        self.assertEqual(([step.first_position for step in trace.steps], trace.tokens.tolist()), ([6, 7], []))
        self.assertEqual(recording.notes, ["the token ids are not known at all positions: it began after the first ones"])

    def test_autocast_that_begins_within_the_module(self):
        class Half(Net):
            def run(self, x):
                with torch.autocast("cpu", torch.bfloat16):
                    return super().run(x)

        model, ids = Half(), self.ids(1, 5)
        recording, trace, _ = self.record(model, lambda: model(ids), checkpoints="layers")
        self.assertEqual(trace.manifest["engine"]["precision"],
                         {"compute": "f32", "activations": "bf16", "kv": "bf16", "weights": "bf16"})  # fmt: skip
        self.told(recording, "autocast was on: products are computed in bf16")
        own = {"compute": "f32", "activations": "f32"}
        _, trace, _ = self.record(model, lambda: model(ids), precision=own)
        self.assertEqual(trace.manifest["engine"]["precision"], own)

    def test_nested_tensors(self):
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=True)
        model, rows = nn.TransformerEncoder(layer, 2).eval(), torch.rand(2, 5, WIDTH)
        hidden = torch.arange(5) >= torch.tensor([[5], [3]])
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch calls them a prototype
            recording, trace, output = self.record(model, lambda: model(rows, None, hidden))
        self.told(recording, "nested tensors have no row for each token and were not recorded")
        self.assertTrue(torch.isfinite(output).all())

    def test_names_that_a_trace_cannot_hold(self):
        class Strange(Block):
            def forward(self, x):
                for name in ("a\nb", "\ud800", "n" * 300, "ä ö"):
                    x = self.get_submodule(name)(x)
                return x

        model, ids = Net([Strange(), Block()]), self.ids(1, 5)
        for name in ("a\nb", "\ud800", "n" * 300, "ä ö"):
            model.layers[0].add_module(name, nn.Linear(WIDTH, WIDTH))
        recording, trace, logits = self.record(model, lambda: model(ids))
        self.same(trace, "logits", logits)
        self.assertIn("layers.0.ä ö", trace)
        left = [name for name in trace.manifest["unmapped"] if name not in ("layers.0.norm", "layers.0.turn")]
        self.assertEqual(left, ["layers.0.a\nb", "layers.0.?", "layers.0." + "n" * 300])
        self.told(recording, r"'layers.0.a\nb' was not recorded: a name in a trace has 1 to 255 bytes of printable UTF-8")

    def test_a_process_that_goes_elsewhere(self):
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.root)
        model, ids = Net(), self.ids(1, 5)
        with lockstep.record(model, "here"):
            os.chdir("/")
            logits = model(ids)
        os.chdir(self.root)
        trace = lockstep.open_trace("here")
        os.chdir("/")
        self.same(trace, "logits", logits)

    def test_what_a_rule_cannot_take_of_a_module(self):
        model = Net()
        for take in ("second_input", "softmax_input", "query", "expert_up"):
            names, folder = {"layers.{N}": {"checkpoint": "blk.{N}.output", "take": take}}, self.folder()
            with self.assertRaisesRegex(ValueError, f"^names: 'layers.0': take '{take}' is for functions; of a module"):
                lockstep.record(model, folder, names=names).start()
            self.assertFalse(folder.exists())

    def test_no_numbers(self):
        with torch.device("meta"):
            model = Net()
        with self.assertRaisesRegex(TypeError, "^record: the module is called on the device 'meta', where there are no numbers$"):
            with lockstep.record(model, self.folder()) as recording:
                model(self.ids(1, 5).to("meta"))
        self.assertFalse(recording.folder.exists())
        model = Net()
        recording, trace, _ = self.record(model, lambda: [model(self.ids(*shape)) for shape in ((1, 0), (0, 4))])
        self.assertEqual(len(trace.steps), 0)
        self.assertEqual(recording.notes, ["a call of the module without token ids or rows of numbers was not recorded"])


if __name__ == "__main__":
    unittest.main()
