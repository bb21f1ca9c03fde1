"""The HTTP face: `retinue serve`. Starlette and uvicorn are imported here and nowhere else.

table        every route once: method, path, parameters, body, result, errors, help
handlers     what the routes do, through `retinue.app`
app          requests to handlers and back; errors as RFC 9457 problems; the files of the page; `/mcp` for MCP hosts
security     who may ask: host, origin, token, sizes, headers of every response
credentials  the token, the codes of links, and the keys of pages
connections  limits to connections: how many, how slow
launcher     opens the page in the browser
sse          the event stream
openapi      the table as an OpenAPI 3.1 document
ag_ui        agents for clients that speak AG-UI
openai       agents for clients that speak OpenAI's chat completions
process      the server as a process: socket, token file, start and end
"""

from retinue.faces.server.process import ServerInfo as ServerInfo
from retinue.faces.server.process import ServerOptions as ServerOptions
from retinue.faces.server.process import run_server as run_server
from retinue.faces.server.process import running_server as running_server
