"""One question, many languages: the definition is found whatever its syntax."""

from __future__ import annotations

from pathlib import Path

import pytest

from retinue.models.offline.ranking import definition_of
from tests.models.offline.questioner import ask, plant

TREES = {
    "go": {
        "pool.go": "package x\n\ntype ConnectionPool struct{}\n\nfunc (p *ConnectionPool) Acquire() {}\n",
        "main.go": "package x\n\nfunc main() { p := ConnectionPool{}; p.Acquire() }\n",
    },
    "rust": {
        "src/pool.rs": "pub struct ConnectionPool;\n\nimpl ConnectionPool {\n    pub fn acquire(&self) {}\n}\n",
        "src/main.rs": "mod pool;\nfn main() { pool::ConnectionPool.acquire(); }\n",
    },
    "typescript": {
        "src/pool.ts": "export class ConnectionPool {\n  async acquire(): Promise<void> {}\n}\n",
        "src/index.ts": "export * from './pool';\n",
    },
    "javascript": {
        "lib/pool.js": "exports.connectionPool = function () {\n  return [];\n};\n",
        "lib/app.js": "const pool = require('./pool');\npool.connectionPool();\n",
    },
    "java": {
        "src/main/java/db/ConnectionPool.java": "public class ConnectionPool {\n  public void acquire() {\n  }\n}\n",
        "src/main/java/db/Main.java": "package db;\nclass Main { ConnectionPool pool; }\n",
    },
    "c": {
        "pool.c": '#include "pool.h"\n\nint connection_pool_acquire(struct pool *p)\n{\n    return 0;\n}\n',
        "pool.h": "int connection_pool_acquire(struct pool *p);\n",
        "main.c": "int main(void) { return 0; }\n",
    },
    "ruby": {
        "lib/pool.rb": "module Db\n  class ConnectionPool\n    def acquire\n    end\n  end\nend\n",
        "lib/app.rb": "require 'pool'\n",
    },
}
RIGHT = {
    "go": "pool.go",
    "rust": "src/pool.rs",
    "typescript": "src/pool.ts",
    "javascript": "lib/pool.js",
    "java": "src/main/java/db/ConnectionPool.java",
    "c": "pool.c",
    "ruby": "lib/pool.rb",
}


@pytest.mark.parametrize("language", list(TREES))
async def test_the_connection_pool_is_found(language: str, tmp_path: Path) -> None:
    asked = await ask("where is the connection pool implemented?", plant(tmp_path / "tree", TREES[language]))
    assert asked.named[0] == RIGHT[language]


@pytest.mark.parametrize(
    ("line", "kind", "name"),
    [
        ("class Auth(Base):", "type", "Auth"),
        ("    async def fetch(self):", "function", "fetch"),
        ("func (r *Router) Handle(path string) {", "function", "Handle"),
        ("pub(crate) struct Noqa<'a> {", "type", "Noqa"),
        ("export default class Store {", "type", "Store"),
        ("export const parse = (text: string) => {", "function", "parse"),
        ("proto.use = function use(fn) {", "function", "use"),
        ("    public static void copy(File a) {", "function", "copy"),
        ("static int parse_number(const char *s)", "function", "parse_number"),
        ("int declared_only(const char *s);", "", ""),
        ("#define MAX_RETRIES 3", "value", "MAX_RETRIES"),
        ("TIMEOUT = 30", "value", "TIMEOUT"),
        ("    return parse(text)", "", ""),
        ("    if (ready(x)) {", "", ""),
        ("# where the type of a value is checked", "", ""),
        ("    The class of a request decides what happens next.", "", ""),
        ("from shop.login import sign_in", "", ""),
        ('#include "pool.h"', "", ""),
        ("const x = require('x');", "", ""),
    ],
)
def test_definitions_are_told_from_other_lines(line: str, kind: str, name: str) -> None:
    definition = definition_of(line)
    assert (definition.kind, definition.name) == (kind, name) if definition else not name
