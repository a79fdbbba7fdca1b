"""Find the formats of tool calls in chat templates, render calls, and parse them."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from real_templates import REJECTS_TEXT, real_formats, real_templates

from eliza_ffi.chat import call_finder
from eliza_ffi.chat.call_finder import find_call_format
from eliza_ffi.chat.call_format import Call, CallFormat, Hole, Json, Member, Members, render_call
from eliza_ffi.chat.call_reader import parse_call
from eliza_ffi.chat.template import ChatTemplate
from eliza_ffi.chat.tool_messages import GENERIC, tool_messages
from eliza_ffi.chat.tools import Tool, read_tools
from eliza_ffi.errors import ChatTemplateError, InvalidArgumentError

Message = dict[str, Any]

QUESTION: Message = {"role": "user", "content": "Question?"}
IDS = ("abcdefgh1", "abcdefgh2", "abcdefgh3")
WITHOUT_CALLS = {
    "HuggingFaceTB-SmolLM3-3B",
    "LFM2-8B-A1B",
    "LFM2.5-Instruct",
    "google-gemma-2-2b-it",
    "ibm-granite-granite-3.3-2B-Instruct",
    "llama-cpp-rwkv-world",
    "microsoft-Phi-3.5-mini-instruct",
}
"""Templates that do not write calls."""

INDENTS, LINE_ENDS = "CohereForAI-c4ai-command-r-plus-tool_use", re.compile("[\x85\u2028\u2029]")
"""A template that indents JSON with Jinja2's filter, which breaks strings at these characters."""


def native() -> dict[str, CallFormat]:
    """Return the formats of the templates that write calls."""
    return {name: format for name, format in real_formats().items() if not format.generic}


def called(calls: Sequence[Call]) -> Message:
    """Return an assistant turn with the given calls."""
    written = [
        {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
        for c in calls
    ]
    return {"role": "assistant", "content": None, "tool_calls": written}


# ---- real templates ----------------------------------------------------------------------------


@pytest.mark.slow
def test_the_format_is_found_in_every_template_that_writes_calls() -> None:
    assert {name for name, format in real_formats().items() if format.generic} == WITHOUT_CALLS
    assert len(native()) == len(real_templates()) - len(WITHOUT_CALLS) - 1


@pytest.mark.slow
def test_a_template_that_rejects_every_question_raises_an_error() -> None:
    with pytest.raises(ChatTemplateError, match="rejects the messages"):
        find_call_format(real_templates()[REJECTS_TEXT])


def schema_of(value: Any) -> dict[str, Any]:
    """Return a schema that allows values of the same type as `value`."""
    if isinstance(value, dict):
        properties = {key: schema_of(item) for key, item in value.items()}
        return {"type": "object", "properties": properties}
    if isinstance(value, list):
        return {"type": "array", "prefixItems": [schema_of(item) for item in value]}
    names = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
    return {"type": names[type(value)]}


def tools_for(calls: Sequence[Call]) -> tuple[Tool, ...]:
    """Return a tool for each call, with a schema for the types of its arguments."""
    return tuple(Tool(call.name, "A tool.", schema_of(call.arguments)) for call in calls)


KEYS = st.text("abcXYZ_019", min_size=1, max_size=6)
STRINGS = st.one_of(
    st.text(max_size=20),
    st.text("ab<>/\"'\\{}[]:,\n &é|", max_size=20),
    st.sampled_from(["42", "true", "null", "None", "[1]", "{}", " x ", "</parameter>", "it's"]),
)
SCALARS = st.one_of(
    STRINGS,
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.none(),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
MANY_ARGUMENTS = st.lists(st.dictionaries(KEYS, VALUES, max_size=4), min_size=1, max_size=3)


def expressible(format: CallFormat, value: Any, key: str = "", written: str = "members") -> bool:
    """Return whether a value can be rendered so that it parses back."""
    if isinstance(format.arguments, Json):
        return True
    if isinstance(value, dict | list) and written == "members":
        members = format.arguments if isinstance(value, dict) else format.items
        pairs = value.items() if isinstance(value, dict) else (("", item) for item in value)
        return all(member_is_expressible(format, members, key, item) for key, item in pairs)
    return True


def member_is_expressible(
    format: CallFormat, members: Members | None, key: str, value: Any
) -> bool:
    member = members.member(value) if members else None
    if member is None:
        return False
    closing = member.closing(key)
    if member.value == "raw":
        return (value + closing).find(closing) == len(value)
    return expressible(format, value, key, member.value)


@pytest.mark.slow
@settings(max_examples=40)
@given(MANY_ARGUMENTS)
def test_rendered_calls_match_the_template_and_parse_back(many: list[dict[str, Any]]) -> None:
    for name, format in native().items():
        template = real_templates()[name]
        calls = [Call(f"tool_{'x' * i}", arguments, IDS[i]) for i, arguments in enumerate(many)]
        calls = calls if format.parallel else calls[:1]
        if not all(writable(format, call.arguments) for call in calls):
            continue
        tools = tools_for(calls)
        given = {
            "tools": [tool.definition for tool in EXAMPLE_TOOLS],
            "add_generation_prompt": False,
        }
        text = template.render([QUESTION, called(calls)], **given)
        written = render_call(format, calls)
        if name == INDENTS and LINE_ENDS.search(written):
            continue
        before, after = around(name)
        assert text == before + written + after, name
        if all(expressible(format, call.arguments) for call in calls):
            read = parse_call(format, written, tools)
            assert [(call.name, call.arguments) for call in read] == [
                (call.name, call.arguments) for call in calls
            ], name


EXAMPLE_TOOLS = read_tools([{"type": "function", "function": {"name": "tool_"}}])


def writable(format: CallFormat, arguments: dict[str, Any]) -> bool:
    try:
        render_call(format, [Call("x", arguments, IDS[0])])
    except InvalidArgumentError:
        return False
    return True


@functools.cache
def around(name: str) -> tuple[str, str]:
    """Return the template's text before and after the calls of a turn."""
    example = Call("tool_", {"some_key": "some value"}, IDS[0])
    tools = [tool.definition for tool in EXAMPLE_TOOLS]
    text = real_templates()[name].render(
        [QUESTION, called([example])], tools=tools, add_generation_prompt=False
    )
    before, found, after = text.rpartition(render_call(real_formats()[name], [example]))
    assert found, name
    return before, after


CLOSED_THOUGHTS = {
    "Qwen-QwQ-32B",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
    "deepseek-ai-DeepSeek-V3.2",
}
"""Templates whose generation prompt ends with empty thoughts that rendered turns do not contain."""

WRITES_AFTER_TURNS = {
    "CohereForAI-c4ai-command-r-plus-tool_use",
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
}
"""Templates that write more text after the last assistant turn, or begin another turn."""


@pytest.mark.slow
def test_turns_follow_the_generation_prompt_as_the_format_describes() -> None:
    tools = [tool.definition for tool in EXAMPLE_TOOLS]
    call = Call("tool_", {"some_key": "some value"}, IDS[0])
    for name, format in real_formats().items():
        if name in CLOSED_THOUGHTS | WRITES_AFTER_TURNS:
            continue
        template = real_templates()[name]

        def render(turn: Message, template: ChatTemplate = template) -> str:
            return template.render([QUESTION, turn], tools=tools, add_generation_prompt=False)

        prompt = template.render([QUESTION], tools=tools)
        assert prompt.endswith(format.cut), name
        start = prompt.removesuffix(format.cut) + format.lead
        answer = {"role": "assistant", "content": "Answer."}
        assert render(answer).startswith(f"{start}{format.text_start}Answer."), name
        if not format.generic:
            assert render(called([call])).startswith(start + render_call(format, [call])), name


@pytest.mark.slow
def test_template_variables_change_the_call_format() -> None:
    template = real_templates()["Qwen-Qwen3-0.6B"]
    thinking, not_thinking = (
        find_call_format(template, enable_thinking=enabled) for enabled in (True, False)
    )
    assert thinking.lead == "<think>\n\n</think>\n\n"
    assert not_thinking.lead == ""
    assert thinking.call == not_thinking.call


@pytest.mark.slow
def test_every_template_accepts_ids_of_nine_characters() -> None:
    with_ids = {name for name, format in real_formats().items() if Hole.ID in format.call}
    assert with_ids == {
        "Mistral-Small-3.2-24B-Instruct-2506",
        "mistralai-Mistral-Nemo-Instruct-2407",
        "upstage-Solar-Open-100B",
    }


# ---- templates written for these tests ----------------------------------------------------------

TURN = """\
{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.role == 'assistant' %}{{ THOUGHTS }}{% endif %}{{ m.content }}
{%- if m.tool_calls %}CALLS{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
PROMPT{% endif %}{% if tools %}{% endif %}
"""


def made(calls: str, thoughts: str = "", prompt: str = "") -> ChatTemplate:
    """Return a template that writes the calls of the message `m` as `calls` specifies."""
    source = "{{ tools | tojson if tools else '' }}" + TURN.replace("CALLS", calls)
    source = source.replace("{{ THOUGHTS }}", thoughts).replace("PROMPT", prompt)
    return ChatTemplate(source)


def each_call(call: str, between: str = "") -> str:
    last = "{% if not loop.last %}" + between + "{% endif %}"
    return "{% for c in m.tool_calls %}" + call + last + "{% endfor %}"


NAME, AS_JSON = "{{ c.function.name }}", "{{ c.function.arguments | tojson }}"
EACH_ARGUMENT = "{% for k, v in c.function.arguments.items() %}ARGUMENT{% endfor %}"
AS_TAGS = EACH_ARGUMENT.replace("ARGUMENT", "<p={{ k }}>{{ v if v is string else v | tojson }}</p>")
TAGS = Member(("<p=", Hole.KEY, ">", Hole.VALUE, "</p>"), "json")
KINDS = dict.fromkeys(("number", "boolean", "null", "array", "object"), TAGS)
KINDS["string"] = Member(TAGS.pieces, "raw")


def test_a_list_of_json_objects_is_found() -> None:
    calls = "[CALLS][" + each_call('{"name": "NAME", "arguments": ARGS}', ", ") + "]"
    template = made(calls.replace("NAME", NAME).replace("ARGS", AS_JSON))
    assert find_call_format(template) == CallFormat(
        open="[CALLS][",
        call=('{"name": "', Hole.NAME, '", "arguments": ', Hole.ARGUMENTS, "}"),
        between=", ",
        close="]",
    )


def test_arguments_in_tags_are_found() -> None:
    template = made(each_call(f"<call>{NAME}:{AS_TAGS}</call>"))
    format = find_call_format(template)
    assert format.call == ("<call>", Hole.NAME, ":", Hole.ARGUMENTS, "</call>")
    assert isinstance(format.arguments, Members)
    assert format.arguments.of_type == KINDS
    assert format.call_start == "<call>"


def test_ids_and_numbers_of_calls_are_found() -> None:
    template = made(each_call(f"<{{{{ loop.index }}}} {NAME} {{{{ c.id }}}} {AS_JSON}>"))
    format = find_call_format(template)
    assert format.call == ("<", Hole.INDEX, " ", Hole.NAME, " ", Hole.ID, " ", Hole.ARGUMENTS, ">")
    assert format.first_index == 1 and not format.index_continues
    two = [Call("f", {}, IDS[0]), Call("g", {"x": 1}, IDS[1])]
    assert render_call(format, two) == '<1 f abcdefgh1 {}><2 g abcdefgh2 {"x": 1}>'
    assert parse_call(format, render_call(format, two), tools_for(two)) == two


def test_call_numbers_that_continue_across_turns_are_found() -> None:
    count = "{% set ns = namespace(n=0) %}"
    call = "[{{ ns.n }}|" + f"{NAME}|{AS_JSON}]" + "{% set ns.n = ns.n + 1 %}"
    template = ChatTemplate(count + made(each_call(call)).source)
    format = find_call_format(template)
    assert format.index_continues and format.first_index == 0
    assert render_call(format, [Call("f", {})], earlier_calls=3) == "[3|f|{}]"


def test_a_template_that_rejects_two_calls_allows_one_per_turn() -> None:
    reject = "{% if m.tool_calls | length > 1 %}{{ raise_exception('one!') }}{% endif %}"
    format = find_call_format(made(reject + each_call(f"({NAME} {AS_JSON})")))
    assert not format.parallel and format.call == ("(", Hole.NAME, " ", Hole.ARGUMENTS, ")")
    with pytest.raises(InvalidArgumentError, match="needs one call in a turn, got 2"):
        render_call(format, [Call("f", {}), Call("g", {})])


def test_strings_quoted_only_when_necessary_are_found() -> None:
    value = "{{ '\"' ~ v ~ '\"' if v is string and ('<' in v or ' ' in v) else v }}"
    call = f"<call>{NAME}({EACH_ARGUMENT})</call>".replace("ARGUMENT", f"[{{{{ k }}}}={value}]")
    format = find_call_format(made(each_call(call)))
    assert isinstance(format.arguments, Members)
    assert format.arguments.quoted_characters == "< "
    calls = [Call("f", {"a": "x", "b": "x<y", "c": "z z", "d": 1.5, "e": None})]
    text = render_call(format, calls)
    assert text == '<call>f([a=x][b="x<y"][c="z z"][d=1.5][e=None])</call>'
    assert parse_call(format, text, tools_for(calls)) == calls


CALL = each_call(f"<call>{NAME} {AS_JSON}</call>")
WRITES_THOUGHTS = "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"


@pytest.mark.parametrize(
    ("thoughts", "prompt", "cut", "lead"),
    [
        ("", "", "", ""),
        (WRITES_THOUGHTS, "", "", ""),
        (WRITES_THOUGHTS, "<think>", "<think>", ""),
        ("<think>{{ m.reasoning_content }}</think>", "<think>", "", "</think>"),
        ("<think></think>", "<think></think>", "", ""),
        ("<think></think>", "", "", "<think></think>"),
        ("", "<think></think>", "", ""),
        ("", "<think>", "<think>", ""),
    ],
)
def test_what_follows_the_generation_prompt_is_found(
    thoughts: str, prompt: str, cut: str, lead: str
) -> None:
    found = find_call_format(made(CALL, thoughts, prompt))
    assert (found.cut, found.lead, found.text_start) == (cut, lead, "")
    assert found.call_start == "<call>"


def test_fixed_text_before_an_answer_in_words_is_found() -> None:
    text = "{% if not m.tool_calls and m.role == 'assistant' %}to=user {% endif %}"
    format = find_call_format(made(each_call(f"to={NAME} {AS_JSON}"), text))
    assert format.text_start == "to=user " and format.call_start == "to="


@pytest.mark.parametrize(
    "calls",
    [
        "",
        "a call",
        each_call(NAME),
        each_call(AS_JSON),
        each_call(NAME + "{{ c.function.arguments.keys() | list }}"),
        each_call(f"{NAME} {AS_JSON} {AS_JSON}"),
        each_call(f"{{% if loop.first %}}{NAME} {AS_JSON}{{% else %}}{NAME}={AS_JSON}{{% endif %}}")
        + "{% if m.tool_calls[0].function.arguments | length == 3 %}three!{% endif %}",
        "{{ raise_exception('no calls') }}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    ],
)
def test_a_template_without_readable_calls_gets_the_generic_format(calls: str) -> None:
    assert find_call_format(made(calls)) == GENERIC


def test_a_template_that_is_slow_for_short_messages_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(call_finder, "MAX_SECONDS", 0.0)
    with pytest.raises(ChatTemplateError, match="takes more than 0 seconds to write short"):
        find_call_format(made(CALL))


@pytest.mark.parametrize("text", ["x<1", "9"])
def test_a_template_with_very_long_turns_gets_no_native_format(text: str) -> None:
    much = "{% if m.tool_calls %}{{ '" + text + "' * 900000 }}{% endif %}"
    assert find_call_format(made(much + CALL)) == GENERIC
    with pytest.raises(ChatTemplateError, match="has no place for tool calls"):
        find_call_format(made(CALL, "{{ '" + text + "' * 900000 }}"))


def test_the_generic_format_keeps_the_beginning_of_turns() -> None:
    format = find_call_format(made("", WRITES_THOUGHTS, "<think>"))
    assert format.generic and format.cut == "<think>"


# ---- reading -----------------------------------------------------------------------------------

TAGGED = CallFormat(
    open="<calls>",
    call=("<", Hole.NAME, ">", Hole.ARGUMENTS, "</>"),
    close="</calls>",
    arguments=Members(KINDS),
)
ANY = Tool("f", "", {"type": "object", "properties": {}})


def tool(**properties: Any) -> Tool:
    definitions = {"city": {"type": "string"}}
    return Tool("f", "", {"type": "object", "properties": properties, "$defs": definitions})


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string"}, "42"),
        ({"type": "integer"}, 42),
        ({"type": ["string", "null"]}, "42"),
        ({"type": ["string", "integer"]}, 42),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "42"),
        ({"$ref": "#/$defs/city"}, "42"),
        ({"allOf": [{"$ref": "#/$defs/city"}]}, "42"),
        ({"enum": ["42", "43"]}, "42"),
        ({"const": "42"}, "42"),
        ({"type": "boolean"}, 42),  # the schema does not allow a number, but it is the only reading
        ({}, 42),
        (True, 42),
        ({"$ref": "#/none"}, 42),
        ({"$ref": "https://example.com/"}, 42),
    ],
)
def test_the_schema_decides_between_string_and_number(schema: Any, value: Any) -> None:
    text = "<calls><f><p=x>42</p></></calls>"
    assert parse_call(TAGGED, text, [tool(x=schema)]) == [Call("f", {"x": value})]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("true", True),
        ("null", None),
        ("1e3", 1000.0),
        ('{"a": ["</p>"]}', {"a": ["</p>"]}),
        ("[1, 2", "[1, 2"),
        ("NaN", "NaN"),
        ("", ""),
        (" x\n", " x\n"),
    ],
)
def test_without_a_schema_only_text_that_is_not_json_is_a_string(written: str, value: Any) -> None:
    text = f"<calls><f><p=x>{written}</p></></calls>"
    (call,) = parse_call(TAGGED, text, [ANY])
    assert call.arguments == {"x": value} and type(call.arguments["x"]) is type(value)


def test_a_tool_name_may_be_a_prefix_of_another() -> None:
    tools = [Tool(name, "", {}) for name in ("get", "get_all", "get_all_now")]
    for name in ("get_all", "get_all_now", "get"):
        text = render_call(TAGGED, [Call(name, {})])
        assert parse_call(TAGGED, text, tools)[0].name == name


@pytest.mark.parametrize(
    ("format", "text", "message"),
    [
        (TAGGED, "", "at character 0: expected '<calls>', got 'the end'"),
        (TAGGED, "<calls><g>", "at character 8: expected 'f', got 'g>'"),
        (
            TAGGED,
            "<calls><f><p=x>",
            "expected a value of the type string and '</p>', got 'the end'",
        ),
        (TAGGED, "<calls><f><p=x", "expected a name and '>', got 'x'"),
        (TAGGED, "<calls><f>x</>", "at character 10: expected '</>' or another value"),
        (TAGGED, "<calls><f></></call>", "expected 'f', got '/call>'"),
        (GENERIC, '{"name": "f", "arguments": [1]}', "expected a JSON object, got '[1]}'"),
        (GENERIC, '{"name": "f", "arguments": {"x": NaN}}', "expected a JSON object"),
        (GENERIC, '{"name": "f", "arguments": ' + '{"x": ' * 99_999, "expected a JSON object"),
        (replace(GENERIC, parallel=False), '{"name": "f", "arguments": {}}\n', "expected ''"),
    ],
)
def test_errors_in_the_text_of_a_call_name_the_position(
    format: CallFormat, text: str, message: str
) -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        parse_call(format, text, [ANY])
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("format", "calls", "message"),
    [
        (GENERIC, [], "needs at least one call in a turn, got 0"),
        (replace(GENERIC, call=(Hole.ID,)), [Call("f", {})], "needs an id .*, got none for 'f'"),
        (replace(TAGGED, arguments=Members({})), [Call("f", {"x": None})], "the type null: 'x'"),
        (GENERIC, [Call("f", {"x": {1}})], "not JSON serializable"),
        (TAGGED, [Call("f", {"x": {1}})], "expected a JSON value, got set"),
    ],
)
def test_calls_that_the_format_cannot_write_are_rejected(
    format: CallFormat, calls: list[Call], message: str
) -> None:
    with pytest.raises((InvalidArgumentError, TypeError), match=message):
        render_call(format, calls)


# ---- conversations -----------------------------------------------------------------------------

WEATHER = Tool("get_weather", "Return the weather.", {"type": "object", "properties": {}})
PARTS = [{"type": "text", "text": "21 degrees"}]
LOOP: list[Message] = [
    {"role": "system", "content": "Be brief."},
    QUESTION,
    called([Call("get_weather", '{"x":1}', IDS[0]), Call("get_weather", {}, IDS[1])]),  # type: ignore[arg-type]
    {"role": "tool", "tool_call_id": IDS[0], "content": "20 degrees"},
    {"role": "tool", "tool_call_id": IDS[1], "content": PARTS},
]


def test_a_template_with_tools_gets_the_conversation_unchanged() -> None:
    assert tool_messages(TAGGED, LOOP, [WEATHER]) == (LOOP, [WEATHER.definition])


def test_tools_go_into_the_system_message_if_the_template_lists_none() -> None:
    format = replace(TAGGED, lists_tools=False)
    (system, *others), tools = tool_messages(format, LOOP, [WEATHER])
    assert system["content"].startswith("Be brief.\n\nYou can call tools.")
    assert '{"name": "get_weather", "description": "Return the weather."' in system["content"]
    assert "<calls><tool_name><p=argument_name>value</p></></calls>" in system["content"]
    assert others == LOOP[1:] and tools == [WEATHER.definition]


def test_calls_become_contents_if_the_template_writes_none() -> None:
    before = json.dumps(LOOP)
    messages, tools = tool_messages(GENERIC, LOOP, [WEATHER])
    assert json.dumps(LOOP) == before
    assert tools is None
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    assert messages[2]["content"] == (
        '{"name": "get_weather", "arguments": {"x": 1}}\n{"name": "get_weather", "arguments": {}}'
    )
    assert messages[3]["content"] == (
        "Result of get_weather:\n20 degrees\n\nResult of get_weather:\n21 degrees"
    )
    assert (
        '{"name": "tool_name", "arguments": {"argument_name": "value"}}' in messages[0]["content"]
    )


@pytest.mark.parametrize("call", ["x", {}, {"function": {"name": "f", "arguments": "{"}}])
def test_a_message_with_a_broken_call_is_rejected(call: Any) -> None:
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    with pytest.raises(InvalidArgumentError, match="expected a tool call"):
        tool_messages(GENERIC, [QUESTION, message], [WEATHER])
