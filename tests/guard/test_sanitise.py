"""What a result may show: no secrets, no private paths, no walls of frames (§2.6)."""

from retinue.guard.redact import sanitise

S32 = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6"
ENVIRONMENT = {"HOME": "/srv/people/ann", "USERPROFILE": "D:\\people\\ann"}


def test_secrets_come_first_then_homes():
    assert sanitise(f"api_key={S32}", ENVIRONMENT) == "api_key=[REDACTED]"
    assert sanitise("/srv/people/ann/x and /srv/people/annabel/y", ENVIRONMENT) == "~/x and /srv/people/annabel/y"
    assert sanitise("/home/bob/x /Users/eve/y", ENVIRONMENT) == "~/x ~/y"
    assert sanitise("C:\\Users\\bob\\x D:\\people\\ann\\y G:\\stuff\\z", ENVIRONMENT) == "~\\x ~\\y ~\\z"
    assert sanitise("/var/home/bob", {"HOME": "/"}) == "/var/home/bob"


def test_own_secrets_are_known():
    assert sanitise("it is s3cret-value", {"MY_TOKEN": "s3cret-value"}) == "it is [REDACTED]"


def test_places_of_frames_are_hidden():
    assert sanitise("Error: x\n    at run (/opt/app/a.js:1:2)", {}) == "Error: x\n    at [REDACTED_PATH]"


def test_frames_beyond_the_fifth_are_named_once():
    frames = [f"    at step{n} {'y' * 200}" for n in range(12)]
    text = sanitise("\n".join(["before", *frames, "after"]), {})
    lines = text.split("\n")
    assert lines[:6] == ["before", *frames[:5]]
    assert lines[6].startswith("    at step5")
    assert len(lines[6]) < 110
    assert lines[7:] == ["[Additional stack frames truncated]", "after"]


def test_few_frames_stay():
    text = "TypeError: x\n    at a b\n    at c d"
    assert sanitise(text, {}) == text


def test_twice_is_once():
    text = f"Bearer {S32}\n" + "\n".join(f"  at f{n} (/home/u/x.js)" for n in range(20)) + "\n/home/u/file"
    once = sanitise(text, ENVIRONMENT)
    assert sanitise(once, ENVIRONMENT) == once


def _trace(count: int, indent: str = "") -> str:
    frames = "".join(
        f'{indent}  File "/srv/m{n}.py", line {n}, in step{n}\n{indent}    step{n + 1}()\n{indent}    ^^^^^\n'
        for n in range(count)
    )
    return f"{indent}Traceback (most recent call last):\n{frames}{indent}ValueError: no"


def test_of_a_traceback_of_python_the_last_five_frames_stay():
    text = sanitise(f"before\n{_trace(12)}\nafter", {})
    assert text.startswith("before\nTraceback (most recent call last):\n  [Additional stack frames truncated]\n")
    assert [f"in step{n}\n" in text for n in range(12)] == [False] * 7 + [True] * 5
    assert text.endswith("    step12()\n    ^^^^^\nValueError: no\nafter")
    assert sanitise(text, {}) == text


def test_each_of_several_tracebacks_is_shortened_and_a_short_one_stays():
    again = "\n\nDuring handling of the above exception, another exception occurred:\n\n"
    text = sanitise(_trace(5) + again + _trace(9, "    "), {})
    assert text.startswith(_trace(5) + again)
    assert text.count("[Additional stack frames truncated]") == 1 and text.count("File ") == 10
    assert sanitise("Traceback (most recent call last):", {}) == "Traceback (most recent call last):"
