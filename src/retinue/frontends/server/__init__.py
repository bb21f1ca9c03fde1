"""The HTTP front end: `retinue serve`. Starlette and uvicorn are imported only here.

routes       every route: a function with its method, path, parameters, body and document
params       the parameters and bodies of routes
metrics      totals and counts for Prometheus
app          requests to handlers and back; errors as RFC 9457 problems; the files of the page; `/mcp`
security     access control: host, origin, token, sizes, headers of every response
credentials  the token, the codes of links, and the keys of pages
connections  limits on the number and the speed of connections
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
