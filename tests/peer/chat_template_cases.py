"""Jinja set up as Hugging Face transformers does it, and conversations to render with it."""

import datetime
import functools
import json

import jinja2
import jinja2.ext
import jinja2.sandbox


class Generation(jinja2.ext.Extension):
    """{% generation %} ... {% endgeneration %} marks text for training; it renders as its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda text: datetime.datetime.now().strftime(text)
    return env


@functools.lru_cache(maxsize=1)
def compiled(template):
    return environment().from_string(template)


def expected(template, context):
    """{"text": ...}, or {"error": ...} where Jinja raises."""
    try:
        return {"text": compiled(template).render(**context)}
    except Exception as error:  # whatever a template makes Python raise
        return {"error": f"{type(error).__name__}: {error}"}


def message(role, content, **more):
    return {"role": role, "content": content, **more}


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tells the weather of a town <now> & here; it's \"exact\".",
        "parameters": {
            "type": "object",
            "properties": {
                "town": {"type": "string", "description": "Name of the town, e.g. Zürich"},
                "days": {"type": "integer", "default": 3, "minimum": 1.5},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                "nested": {
                    "type": "object",
                    "properties": {"list": {"type": "array", "items": {"type": "number"}}},
                    "required": ["list"],
                },
            },
            "required": ["town"],
        },
        "return": {"type": "string", "description": "a sentence"},
    },
}

CALL = {
    "id": "call12345",
    "type": "function",
    "function": {"name": "get_weather", "arguments": {"town": "Århus", "days": 2, "dry": True}},
}


def conversations():
    """Name to the list of messages; some are wrong on purpose (templates may refuse them)."""
    user = message("user", "Hello there.")
    answer = message("assistant", "Hi! How can I help?")
    system = message("system", "You are terse.")
    return {
        "user": [user],
        "system": [system, user],
        "turns": [user, answer, message("user", "Tell me more.")],
        "system turns": [system, user, answer, message("user", "And?"), answer],
        "ends with assistant": [user, answer],
        "empty": [message("user", "")],
        "empty system": [message("system", ""), user, message("assistant", ""), user],
        "no messages": [],
        "unicode": [
            message("system", "Ä ö ß — 中文 العربية"),
            message("user", "emoji 👩‍🚀 and \u00a0 space, tab\t, quote ' \" \\ <b>&amp;</b>"),
        ],
        "spaces": [
            message("system", "  leading and trailing \n\n"),
            message("user", "\n  text  \n"),
            message("assistant", " \tanswer\u3000 "),
            message("user", " "),
        ],
        "two users": [user, user],
        "two systems": [system, system, user],
        "system later": [user, system, answer],
        "assistant first": [answer, user],
        "unknown role": [message("wizard", "Abracadabra."), user],
        "thinking": [
            user,
            message("assistant", "<think>\nlet me see\n</think>\n\nForty-two."),
            message("user", "Why?"),
            message("assistant", "Because.", reasoning_content="It was written."),
            user,
        ],
        "tool call": [
            system,
            message("user", "Weather in Århus?"),
            message("assistant", "", tool_calls=[CALL]),
            message("tool", "12 degrees", name="get_weather", tool_call_id="call12345"),
            message("assistant", "It is 12 degrees."),
            message("user", "Thanks."),
        ],
        "tool call without content": [
            user,
            message("assistant", None, tool_calls=[CALL]),
            message("tool", {"degrees": 12.5, "sky": None}, tool_call_id="call12345"),
        ],
        "two tool calls": [
            user,
            message("assistant", "Looking.", tool_calls=[CALL, CALL]),
            message("tool", "a", tool_call_id="call12345"),
            message("tool", "b", tool_call_id="call12345"),
        ],
        "parts": [
            message("user", [{"type": "text", "text": "part one "}, {"type": "text", "text": "two"}])
        ],
    }


def contexts():
    """(name, context) pairs, as apply_chat_template would hand them to a template."""
    for name, messages in conversations().items():
        for prompt in (True, False):
            for tools in (None, [WEATHER], [WEATHER, WEATHER["function"]]):
                if tools and len(tools) == 2 and not prompt:
                    continue
                context = {
                    "messages": messages,
                    "tools": tools,
                    "documents": None,
                    "add_generation_prompt": prompt,
                    "bos_token": "<s>",
                    "eos_token": "</s>",
                    "unk_token": "<unk>",
                    "pad_token": "<pad>",
                }
                yield f"{name}, prompt {prompt}, tools {len(tools or [])}", context
    base = {"add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>"}
    turns = conversations()["turns"]
    yield "bare", {"messages": turns, **base}
    yield "no thinking", {"messages": turns, "enable_thinking": False, "thinking": False, **base}
    yield "thinking on", {"messages": turns, "enable_thinking": True, "thinking": True, **base}
    yield "date", {"messages": turns, "date_string": "1 Jan 2025", "tools": [WEATHER], **base}
    yield (
        "documents",
        {
            "messages": turns,
            "documents": [{"doc_id": 1, "title": "A", "text": "alpha"}, {"text": "beta\n"}],
            "controls": {"length": "short", "originality": "extractive"},
            **base,
        },
    )
