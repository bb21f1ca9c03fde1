"""Making a conversation smaller never breaks it."""

from hypothesis import given
from hypothesis import strategies as st

from retinue.core.messages import AssistantMessage, Image, Text, ToolCall, ToolMessage, ToolResult, UserMessage, user
from retinue.loop import shrink
from retinue.models.protocol import MeasuredConversation, estimate, overhead
from retinue.testing import check_history

WORDS = st.text(max_size=8) | st.integers(1, 3_000).map("x".__mul__)
PARTS = st.builds(Text, WORDS) | st.just(Image("image/png", "AAAA"))
ORIGINS = st.sampled_from(["steer", "follow-up", "wrap-up", "summary", "notification", "task"])
ARGUMENTS = st.dictionaries(st.sampled_from(["path", "text"]), WORDS | st.lists(WORDS, max_size=3), max_size=2)


@st.composite
def turns(draw):
    calls = draw(st.lists(ARGUMENTS, max_size=3))
    said = draw(st.lists(st.builds(Text, WORDS), max_size=1)) or ([] if calls else [Text("word")])
    content = (*said, *(ToolCall(f"c{n}", "tool", arguments) for n, arguments in enumerate(calls)))
    results = [ToolResult(f"c{n}", "tool", (draw(PARTS),), draw(st.booleans())) for n in range(len(calls))]
    spoken = draw(st.lists(st.builds(user, WORDS, ORIGINS), max_size=2))
    return [AssistantMessage(content), *([ToolMessage(tuple(results))] if calls else []), *spoken]


CONVERSATIONS = st.lists(turns(), max_size=8).map(lambda many: [user("the task"), *(m for turn in many for m in turn)])


@given(messages=CONVERSATIONS, count=st.integers(0, 10))
def test_splitting_loses_nothing_and_keeps_calls_with_their_results(messages, count):
    start = shrink.tail_start(messages, count)
    kept, gone, tail = shrink.split(messages, start)
    assert sorted(map(id, [*kept, *gone, *tail])) == sorted(map(id, messages))
    assert kept[0].text == "the task"
    assert tail == messages[start:] and (not tail or isinstance(tail[0], AssistantMessage))
    check_history([*kept, user("summary", "summary"), *tail])
    assert all(isinstance(m, UserMessage) for m in kept)


@given(messages=CONVERSATIONS, count=st.integers(0, 10))
def test_pruning_only_shortens_what_is_old(messages, count):
    end = shrink.tail_start(messages, count)
    pruned = shrink.prune(messages, end)
    check_history(pruned)
    assert pruned[end:] == messages[end:]
    assert estimate(pruned) <= estimate(messages)
    assert [m.type for m in pruned] == [m.type for m in messages]
    assert [m for m in pruned if isinstance(m, UserMessage)] == [m for m in messages if isinstance(m, UserMessage)]


def test_an_output_that_pruning_would_make_longer_stays_as_it_is():
    call = ToolCall("c0", "tool", {})
    messages = [user("go"), AssistantMessage((call,)), ToolMessage((ToolResult("c0", "tool", (Text("x" * 402),)),))]
    assert shrink.prune(messages, len(messages), lambda name: False) == messages


@given(messages=CONVERSATIONS, characters=st.integers(50, 3_000))
def test_cutting_bounds_every_output(messages, characters):
    cut = shrink.cut_outputs(messages, characters)
    check_history(cut)
    for message in cut:
        if isinstance(message, ToolMessage):
            assert all(len(result.text) <= characters + 60 for result in message.results)


@given(messages=CONVERSATIONS, characters=st.integers(100, 5_000))
def test_a_transcript_keeps_to_its_size(messages, characters):
    assert len(shrink.transcript(messages, characters)) <= characters + 60


@given(text=st.text(max_size=300), characters=st.integers(1, 200))
def test_a_cut_text_keeps_its_ends_and_counts_the_rest(text, characters):
    cut = shrink.cut(text, characters)
    if len(text) <= characters:
        assert cut == text
    else:
        assert cut.startswith(text[: characters * 2 // 3]) and f"{len(text) - characters} characters" in cut
        kept = len(cut) - len(f"\n[… {len(text) - characters} characters left out …]\n")
        assert kept == characters


def test_a_call_on_one_line():
    assert shrink.describe(ToolCall("c", "read", {"path": "a"})) == 'read {"path":"a"}'
    assert shrink.describe(ToolCall("c", "read", {}, broken='{"pa')) == 'read {"pa'
    assert shrink.calls_made([], 100) == "- none"


@given(messages=CONVERSATIONS)
def test_the_size_of_a_conversation_adds_up(messages):
    whole = MeasuredConversation(100, messages)
    grown = MeasuredConversation(100, ())
    for message in messages:
        grown.add(message)
    assert whole.tokens == grown.tokens == 100 + estimate(messages)
    assert overhead("x" * 400, ()) == 100
