"""The words that the shipped models know for the minutes of an hour."""

SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen "
    "nineteen"
).split()
TENS = {2: "twenty", 3: "thirty", 4: "forty", 5: "fifty"}
MODELS = ["haiku", "haiku-llama", "haiku-qwen2", "haiku-phi3", "haiku-gpt2", "haiku-granite", "haiku-moe"]


def number_word(number):
    if number < 20:
        return SMALL[number]
    tens, ones = divmod(number, 10)
    return TENS[tens] + (f"-{SMALL[ones]}" if ones else "")


def words_by_model():
    """Every minute's word with one of the models, the same ones in every run."""
    return [(model, [number_word(minute) for minute in range(first, 60, len(MODELS))]) for first, model in enumerate(MODELS)]
