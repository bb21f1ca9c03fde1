"""The MCP face: agents as tools of another program, over stdio (`retinue mcp`) or HTTP (`/mcp` of `retinue serve`).

host         what the program at the other end can do, and the forms that its user fills in
offer        which agents are offered, and the tool of each
params       what the tools take
tools        the tools: what each says of itself and does
wait         a call that waits for a run, whichever kind of host made it
tasks        the Tasks extension: a run as a task
result       a run as the result of a call
server       all of it as one server of the SDK; agents and runs as resources; news of changed agent files
stdio        the server as a process that talks over stdin and stdout
"""
