"""Token formats of many services, and ordinary text that only looks like them."""

from itertools import product

import orjson
import pytest

from retinue.guard.redact import Redactor

A62 = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0u1V2w3X4y5Z6a7B8c9D0e1"
HEX = "0123456789abcdef" * 5
UP = "A1B2C3D4E5F6G7H8J9K0L1M2N3P4Q5R6S7T8U9V0W1X2Y3Z4A5B6C7D8E9F0"
redact = Redactor()

TOKENS = {
    "GitHub": "ghp_" + A62[:36],
    "GitHub server": "ghs_" + A62[:36],
    "GitHub fine-grained": "github_pat_" + A62[:22] + "_" + A62[:59],
    "GitLab": "glpat-" + A62[:20],
    "GitLab runner": "glrt-" + A62[:20],
    "Slack bot": "xoxb-123456789012-1234567890123-" + A62[:24],
    "Slack app": "xapp-1-A012B3C4D5E-1234567890123-" + HEX[:64],
    "Stripe": "sk_live_" + A62[:24],
    "Stripe webhook": "whsec_" + A62[:32],
    "AWS": "AKIA" + UP[:16],
    "Google": "AIza" + A62[:35],
    "Google OAuth": "ya29." + A62[:40],
    "Google client": "GOCSPX-" + A62[:28],
    "OpenAI": "sk-proj-" + A62[:48],
    "OpenRouter": "sk-or-v1-" + HEX[:64],
    "Anthropic": "sk-ant-api03-" + A62 + "-_AA",
    "Hugging Face": "hf_" + A62[:34],
    "npm": "npm_" + A62[:36],
    "PyPI": "pypi-AgEIcHlwaS5vcmc" + A62,
    "RubyGems": "rubygems_" + HEX[:48],
    "Docker": "dckr_pat_" + A62[:27],
    "Tavily": "tvly-dev-" + A62[:32],
    "Discord": "MTE" + A62[:21] + ".Gx1Yz2." + A62[:38],
    "Groq": "gsk_" + A62[:52],
    "Replicate": "r8_" + A62[:37],
    "Databricks": "dapi" + HEX[:32],
    "DigitalOcean": "dop_v1_" + HEX[:64],
    "Linear": "lin_api_" + A62[:40],
    "Figma": "figd_" + A62[:40],
    "Shopify": "shpat_" + HEX[:32],
    "SendGrid": "SG." + A62[:22] + "." + A62[:43],
    "Mailgun": "key-" + HEX[:32],
    "Twilio": "SK" + HEX[:32],
    "Grafana": "glsa_" + A62[:32] + "_" + HEX[:8],
    "Sentry": "sntrys_" + A62,
    "Supabase": "sbp_" + HEX[:40],
    "Postman": "PMAK-" + HEX[:24] + "-" + HEX[:34],
    "Atlassian": "ATATT3xFfGF0" + A62,
    "Tailscale": "tskey-auth-" + A62[:11] + "-" + A62[:32],
    "Vault": "hvs." + A62[:40],
    "Terraform": A62[:14] + ".atlasv1." + A62 + A62[:8],
    "Telegram": "1234567890:AA" + A62[:33],
    "JWT": "eyJhbGciOiJub25lIn0.eyJzdWIiOiIxMjM0NTY3ODkwIn0." + A62[:43],
    "age": "AGE-SECRET-KEY-1" + UP[:58],
}


@pytest.mark.parametrize("service", TOKENS)
@pytest.mark.parametrize(
    "frame", ["{}", "found {}.", '{{"a": "{}"}}', "x\\n{}\\ny", "curl -u {}:", "<{}>", "https://h/{}/x"]
)
def test_tokens_of_many_services(service, frame):
    secret = TOKENS[service]
    text = frame.format(secret)
    clean = redact(text)
    assert secret not in clean
    assert secret[len(secret) // 2 :] not in clean
    assert redact(clean) == clean
    assert redact.suspects(orjson.dumps({"text": text}))


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("postgres://app:s3cretpw@db.internal:5432/x", "s3cretpw"),
        ("https://user:hunter2@example.org/", "hunter2"),
        ("redis://:p4ssw0rd@cache:6379/0", "p4ssw0rd"),
        ("Server=tcp:db;User Id=sa;Password=Pa55word!;Encrypt=true", "Pa55word!"),
        ("Uid=sa;Pwd=Pa55word;", "Pa55word"),
        ("Pwd=Pa55word;Uid=sa", "Pa55word"),
        ("connect('password=Pa55word!;server=db')", "Pa55word!"),
        ("DefaultEndpointsProtocol=https;AccountName=a;AccountKey=" + A62 + A62[:26] + "==;", A62),
        ("Endpoint=sb://x/;SharedAccessKeyName=n;SharedAccessKey=" + A62[:43] + "=", A62[:43]),
        ("https://hooks.slack.com/services/T01234567/B01234567/" + A62[:24], A62[:24]),
        ("https://discord.com/api/webhooks/123456789012345678/" + A62 + "abcdef", A62),
        ("password: hunter2", "hunter2"),
        ("  password:   'S3cret-pw!'\n", "S3cret-pw!"),
        ("user: me\npassphrase: correct#horse", "correct#horse"),
        ("Password: p4ssw0rd.", "p4ssw0rd"),
        ("https://x.blob.core.windows.net/c?sv=2020&sig=" + A62[:43], A62[:43]),
    ],
)
def test_addresses_and_connection_strings(text, hidden):
    assert hidden not in redact(text)
    assert redact.suspects(orjson.dumps({"text": text}))
    assert redact(redact(text)) == redact(text)


@pytest.mark.parametrize(
    "text",
    [
        'ENV_API_KEY = "ANTHROPIC_API_KEY"',
        "private_key: CertificateIssuerPrivateKeyTypes,",
        "the JWT bearer grant is not supported",
        "bearer = HTTPBearerConfig(token)",
        'authorization = b"Basic " + encoded',
        'headers = {"Authorization": get_header("authorization")}',
        "AUTHORIZATION: Final[istr] = istr('Authorization')",
        "token = tokenizer.next_token_of_the_stream()",
        "secret_key_base_generator_function_name = 1",
        "a_very_long_identifier_name_without_any_digit_in_it",
        "CamelCaseIdentifierThatIsVeryLongIndeedAndHarmless",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b",
        "550e8400-e29b-41d4-a716-446655440000",
        "https://example.com/a?page=2&sort=name",
        "for key, value in tokens.items(): passwords[key] = value",
        "password: str | None = None",
        "Password: required",
        "password: the one that you chose in step 2",
        "def login(user: str, password: SecretStr) -> None:",
        "password: ${DB_PASSWORD_2}",
        "password: getpass.getpass()",
        "password: config.password_2_of(user)",
        "skip-this-long-kebab-case-name-please",
    ],
)
def test_ordinary_text_stays(text):
    assert redact(text) is text


@pytest.mark.parametrize("service", TOKENS)
def test_words_seen_before_are_judged_by_where_they_stand(service):
    """Repeated words are looked at once, unless their neighbours are others."""
    secret = TOKENS[service]
    parts = secret.split(".")
    ordinary = "".join(f' "{part}" "toolu_0123456789abcdef01234567"' for part in [*parts, *parts] if part != secret)
    text = f'{ordinary} "{secret}" x{secret} "{secret}" "{secret}" end'
    clean = redact(text)
    assert f'"{secret}"' not in clean
    assert redact(f'"{secret}"') * 2 in clean.replace(" ", "")


NAMES = """
api_key API_KEY ACCESS_KEY_ID key AccountKey auth_token TOKEN "token secret_key client_secret SECRET "secret
PASSWORD "password passphrase "passwd ;password ;Pwd Authorization authorization bearer Bearer export?FOO
https://me ftp://u:p@h https://hooks.slack.com/services/T0/B0 https://discord.com/api/webhooks/123456789012
?token &sig monkey tokenize organization compass exported
""".split()
BETWEEN = ["=", ":", ": ", " = ", '": "', "': '", '\\": \\"', "\\t=\\t", " ", "\t", "/", "@", "=[", "\\n", ""]
VALUES = [A62[:44], A62[:10], "hunter2!", "name_of_a_function(x)", "x@h"]


def test_long_text_is_searched_in_another_way_and_the_same_is_found():
    """Every name with every separator and value, also doubled: alone, and at the end of a file."""
    ordinary = "an ordinary line of text; it goes on, and asks: is x & y = z?\n" * 80
    assert redact(ordinary) is ordinary
    hidden = 0
    for name, between, value in product(NAMES, BETWEEN, VALUES):
        once = f"{name.replace('?F', ' F')}{between}{value}"
        for line in (f"\n{once}{once}\n", f'\n{{"a": "{once}"}}\n'):
            alone = redact(line)
            assert redact(ordinary + line) == ordinary + alone
            hidden += alone != line
    assert hidden > 500
