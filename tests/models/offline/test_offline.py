"""What the offline planner promises: it finds, quotes what is there, and never pretends."""

from __future__ import annotations

from pathlib import Path

import pytest

from retinue.core.messages import user
from retinue.core.usage import Limits
from tests.models.offline.questioner import ask, plant

SHOP = {
    "shop/__init__.py": "from shop.login import sign_in\n",
    "shop/login.py": (
        '"""Who may come in."""\n\n\nclass PasswordCheck:\n    """Authenticates a customer."""\n\n'
        "    def authenticate(self, name: str, password: str) -> bool:\n        return password == 'x'\n\n\n"
        "def sign_in(name: str) -> None: ...\n"
    ),
    "shop/basket.py": '"""What a customer wants."""\n\n\nclass Basket:\n    def add(self, item): ...\n',
    "shop/checkout.py": (
        "from shop.basket import Basket\n\n\ndef pay(basket: Basket, retries: int = 3) -> None:\n"
        '    """Charges the card, and tries again when the bank does not answer."""\n'
        "    for attempt in range(retries):\n        charge(basket)\n"
    ),
    "tests/test_login.py": "def test_authenticate():\n    assert PasswordCheck().authenticate('a', 'x')\n",
    "README.md": "# Shop\n\nAuthentication is explained here, authentication authentication.\n",
}


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return plant(tmp_path / "tree", SHOP)


async def test_the_answer_begins_with_the_file_and_quotes_lines_that_are_there(shop: Path) -> None:
    asked = await ask("Where is authentication handled?", shop)
    assert asked.outcome.ended == "completed"
    assert asked.named[0] == "shop/login.py"
    assert asked.quotes
    for path, number, text in asked.quotes:
        assert " ".join((shop / path).read_text().splitlines()[number - 1].split()) == text


async def test_it_says_what_it_is_what_it_searched_and_how_to_get_a_model(shop: Path) -> None:
    text = (await ask("Where is authentication handled?", shop)).text
    assert "not from a language model" in text
    assert "Searched for: authentication" in text
    assert "retinue models list" in text


async def test_an_identifier_leads_to_its_definition(shop: Path) -> None:
    asked = await ask("where is `Basket` defined?", shop)
    assert asked.quotes[0][:2] == ("shop/basket.py", 4)


async def test_nothing_found_is_said_with_the_words_that_were_tried(shop: Path) -> None:
    asked = await ask("where is the zeppelin moored?", shop)
    assert "Nothing was found" in asked.text
    assert "zeppelin; moored" in asked.text
    assert not asked.named


@pytest.mark.parametrize("task", ["Fix the login bug", "Please write a test for the basket", "refactor checkout"])
async def test_work_it_cannot_do_is_refused_and_related_places_are_given(task: str, shop: Path) -> None:
    asked = await ask(task, shop)
    assert (asked.outcome.ended, asked.outcome.ok, asked.outcome.exit_code) == ("refused", False, 2)
    assert asked.outcome.failure is not None and asked.outcome.failure.kind == "no-model"
    assert asked.text.startswith("I cannot do this")
    assert "language model" in asked.text
    assert asked.named


@pytest.mark.parametrize("task", ["Summarise this project", "Explain the checkout", "review basket.py"])
async def test_judgement_is_not_pretended(task: str, shop: Path) -> None:
    asked = await ask(task, shop)
    assert asked.outcome.ended == "refused" and asked.text.startswith("I cannot do this")


@pytest.mark.parametrize("task", ["hello", "Hi!", "thanks", "???", "1 2 3", "🦀"])
async def test_small_talk_is_answered_without_a_search(task: str, shop: Path) -> None:
    asked = await ask(task, shop)
    assert not asked.calls
    assert "not a language model" in asked.text


async def test_tests_and_documents_come_first_only_when_they_are_asked_for(shop: Path) -> None:
    assert (await ask("which tests cover authentication?", shop)).named[0] == "tests/test_login.py"
    assert (await ask("where is authentication documented?", shop)).named[0] == "README.md"


async def test_a_named_folder_keeps_the_search_inside(tmp_path: Path) -> None:
    tree = plant(tmp_path / "tree", {f"{side}/cache.py": "class Cache:\n    pass\n" for side in ("client", "server")})
    assert (await ask("where is the cache in server/?", tree)).named[0] == "server/cache.py"
    assert (await ask("where is the cache in client/?", tree)).named[0] == "client/cache.py"


async def test_a_turn_limit_ends_in_an_answer_from_what_is_there(shop: Path) -> None:
    asked = await ask("Where is authentication handled?", shop, limits=Limits(max_turns=1))
    assert asked.outcome.ended == "steered"
    assert asked.named[0] == "shop/login.py"
    assert "incomplete" in asked.text
    assert len(asked.answers) == 2


async def test_without_tools_it_says_so(shop: Path) -> None:
    asked = await ask("Where is authentication handled?", shop, tools=())
    assert not asked.calls
    assert "this run has none of them" in asked.text


async def test_a_task_in_a_wrapper_is_read_without_it(shop: Path) -> None:
    wrapped = "<context>\nthe basket of fruit, basket basket\n</context>\nTask: where is authentication handled?"
    assert (await ask(wrapped, shop)).named[0] == "shop/login.py"


async def test_a_long_task_is_searched_for_its_question(shop: Path) -> None:
    story = "The weather was fine and the basket was full. " * 40
    assert (await ask(f"{story} Where do we authenticate customers?", shop)).named[0] == "shop/login.py"


async def test_a_follow_up_is_a_question_of_its_own(shop: Path) -> None:
    asked = await ask([user("Where is the basket?"), user("And where are cards charged again?", "follow-up")], shop)
    assert asked.named[0] == "shop/checkout.py"


@pytest.mark.parametrize(
    ("question", "right"),
    [
        ("认证在哪里处理？", "shop/login.py"),
        ("認証はどこで処理されていますか", "shop/login.py"),
        ("인증은 어디에서 처리됩니까?", "shop/login.py"),
        ("Wo wird die Authentifizierung gemacht?", "shop/login.py"),
        ("¿dónde está la autenticación, authenticate?", "shop/login.py"),
    ],
)
async def test_questions_in_other_languages(question: str, right: str, shop: Path) -> None:
    assert (await ask(question, shop)).named[0] == right


async def test_text_in_other_scripts_is_found_as_it_is(tmp_path: Path) -> None:
    tree = plant(tmp_path / "tree", {"a.py": "# 支付网关的重试\nretry()\n", "b.py": "# 其他\n"})
    assert (await ask("支付网关在哪里？", tree)).named[0] == "a.py"
