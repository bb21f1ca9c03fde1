"""Names of attributes, spans and metrics, from OpenTelemetry's conventions for generative AI.

They follow the repository open-telemetry/semantic-conventions-genai at commit 67dff024, where all `gen_ai.*` names are
still in development. The constants are here and not imported: the package of constants is older than the repository,
and the modules that hold them move. `session.id` and `openinference.span.kind` are aliases that Langfuse
and Phoenix read.
"""

from __future__ import annotations

SCHEMA_URL = "https://opentelemetry.io/schemas/gen-ai-dev/1.42.0-dev"
SCOPE = "retinue"

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
AGENT_NAME = "gen_ai.agent.name"
AGENT_ID = "gen_ai.agent.id"
AGENT_DESCRIPTION = "gen_ai.agent.description"
AGENT_VERSION = "gen_ai.agent.version"
CONVERSATION = "gen_ai.conversation.id"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_MODEL = "gen_ai.response.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHE_READ = "gen_ai.usage.cache_read.input_tokens"
CACHE_CREATION = "gen_ai.usage.cache_creation.input_tokens"
TOKEN_TYPE = "gen_ai.token.type"  # noqa: S105 - the name of an attribute
TOOL_NAME = "gen_ai.tool.name"
TOOL_CALL_ID = "gen_ai.tool.call.id"
TOOL_TYPE = "gen_ai.tool.type"
ERROR_TYPE = "error.type"

# Content: only with the setting `telemetry: content`.
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"
INPUT_VALUE = "input.value"
OUTPUT_VALUE = "output.value"
MOST_CONTENT = 60_000
"""Characters of one attribute."""

SESSION = "session.id"
SPAN_KIND = "openinference.span.kind"

RUN_ID = "retinue.run.id"
PARENT_ID = "retinue.parent.id"
ROOT_ID = "retinue.root.id"
DEPTH = "retinue.depth"
ATTEMPT = "retinue.attempt"
ENDED = "retinue.ended"
LIMIT = "retinue.limit"
COST = "retinue.cost.usd"
FILES_WRITTEN = "retinue.evidence.files_written"
DENIALS = "retinue.denials"
WAIT_FOR = "retinue.wait.for"
INBOX_KIND = "retinue.inbox.kind"
INBOX_CHOICE = "retinue.inbox.choice"
INBOX_BY = "retinue.inbox.by"

_PROVIDERS = {
    "gemini": "gcp.gemini",
    "google": "gcp.gemini",
    "vertex": "gcp.vertex_ai",
    "bedrock": "aws.bedrock",
    "azure": "azure.ai.openai",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "xai": "x_ai",
}


def provider_of(model: str) -> str:
    """Return the conventions' name of the provider of `provider/model`."""
    name = model.partition("/")[0]
    return _PROVIDERS.get(name, name)
