"""The HTTP front end: `retinue serve`. Starlette and uvicorn are imported here and nowhere else.

routes       every route: a function with its method, path, parameters, body and document, through `retinue.app`
params       the parameters and bodies of routes
metrics      sums and counts for Prometheus
app          requests to handlers and back; errors as RFC 9457 problems; the files of the page; `/mcp` for MCP hosts
security     who may ask: host, origin, token, sizes, headers of every response
credentials  the token, the codes of links, and the keys of pages
connections  limits to connections: how many, how slow
launcher     opens the page in the browser
sse          the event stream
openapi      the routes as an OpenAPI 3.1 document
ag_ui        agents for clients that speak AG-UI
chat         agents for clients that speak OpenAI's chat completions
process      the server as a process: socket, token file, start and end
"""

from retinue.frontends.server.process import ServerInfo as ServerInfo
from retinue.frontends.server.process import ServerOptions as ServerOptions
from retinue.frontends.server.process import run_server as run_server
from retinue.frontends.server.process import running_server as running_server
