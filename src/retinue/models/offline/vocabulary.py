"""What the planner knows of English and of programming in general, and nothing of any project.

Every entry has to be true for most code bases. A word list that helps one package and no other
does not belong here.
"""

from __future__ import annotations

STOP = frozenset(
    "where what which who whom whose why when how find locate show tell list give explain describe look search see "
    "me please can could would should will shall may might must do does did done doing is are was were be been "
    "being am has have had having get gets got getting want wants need needs needed know let lets help a an the "
    "this that these those there here it its their them they he she we us our you your my mine i and or but nor so "
    "if then else than as at by for from in into of off on onto out over to up with within without about above "
    "after again against all also any around because before between both down during each either every few further "
    "just more most much no not now once only other own same some such through too under until very via while per "
    "like eg etc using used use uses actually really exactly way ways kind sort thing things bit wo wird werden der "
    "das ein eine einen ist sind wie und oder où est sont le la les des du une et ou donde dónde está están el los "
    "las como cómo se en de il lo gli dove come code file files repo repository project codebase source module "
    "modules package library program software place places location part parts section line lines implementation "
    "implemented implement implements implementing defined define defines definition definitions defining declared "
    "declare declares handled handle handles handling happen happens happening live lives located logic responsible "
    "decide decides decided deal deals perform performs performed work works working function functions method "
    "methods take takes taken directly becomes become turned turn turns comes go goes called calls thorough "
    "thoroughly quick quickly medium explore exploration breadth relevant related overview".split()
)
"""Not searched for: grammar, also of other languages, and words for the place that is asked for."""

WEAK = (
    "create make build store save read write load run start stop set send receive check add remove change update "
    "return call keep raise throw process determine find show produce new old long short many first last next name "
    "value type object data item user string text class support main base default common general different single "
    "multiple give result allow apply automatic manage control choose provide open close system application app "
    "server client request response command interface"
).split()
"""Words with a meaning that so many files share that they decide little by themselves; in any
of their forms."""

IRREGULAR = {
    "written": "write", "wrote": "write", "built": "build", "sent": "send", "found": "find", "drawn": "draw",
    "bound": "bind", "kept": "keep", "shown": "show", "chosen": "choose", "choice": "choose", "ran": "run",
    "hidden": "hide", "thrown": "throw", "undone": "undo", "held": "hold", "made": "make", "taken": "take",
    "storage": "store", "indices": "index", "children": "child", "conversion": "convert", "extension": "extend",
}  # fmt: skip
UNCHANGED = frozenset("author setting string version header embed".split())
"""Words that look inflected and are not, where cutting would join them with another word."""
ENDINGS = {
    6: "ment", 5: "ising ised ise",
    4: "ization isation izing ized izer ize ability ation ating ated ator ative ate ively ive able ible ion er or ly",
    3: "ing ed",
}  # fmt: skip
"""What is cut off a word, by the letters that must be left."""

ACTIONS = (
    "write|implement|add|fix|refactor|create|delete|remove|rename|change|update|edit|modify|replace|run|execute|commit"
    "|deploy|install|build|make|migrate|rewrite|move|convert|optimi[sz]e|apply|generate|format|set up|upgrade|debug"
    "|solve"
)
JUDGEMENTS = (
    "summari[sz]e|explain|describe|review|translate|compare|evaluate|assess|analy[sz]e|plan|design|suggest|propose"
    "|brainstorm|tell me (?:a|about)|what do you think|why|critique|calculate|compute|prove|draft|compose|document"
)
"""How tasks begin that a search cannot do."""

SYNONYMS = (
    "authentication authenticate auth login signin credential",
    "authorization authorize permission acl access policy", "permission allow approve policy",
    "configuration config conf settings options preferences", "cli argparse argv main commandline", "database db sql",
    "delete remove erase unlink drop", "exception error failure", "log logger logging",
    "store save persist storage dump", "load read restore open", "send transmit emit post publish dispatch",
    "receive recv consume", "start launch spawn boot run fork", "stop shutdown terminate kill close",
    "serialize encode dump marshal", "deserialize decode unmarshal", "parse parser lexer tokenize",
    "compress gzip deflate zip", "decompress decode inflate unpack extract", "duplicate dedupe dupe unique",
    "retry backoff attempt", "throttle ratelimit limit quota", "cache memoize", "schedule cron timer periodic",
    "route router url endpoint dispatch", "template render view", "validate check verify",
    "render draw display paint", "environment env", "directory folder dir", "repository repo",
    "argument arg param parameter", "parameter param arg", "message msg", "request req", "response resp reply",
    "context ctx", "connection conn connect", "command cmd", "function func fn callable", "temporary tmp temp",
    "document doc", "password passwd secret", "format fmt formatter", "image img picture",
    "translation i18n locale gettext", "concurrency thread pool worker", "hash digest checksum",
    "encrypt cipher crypto", "token tokenizer lexer", "undo revert rollback restore",
    "conversation history message chat", "summary summarize compact", "dns resolver", "websocket ws",
    "upload publish", "download fetch", "find discover locate search", "merge combine join", "copy clone duplicate",
    "plugin extension addon", "event signal hook listener", "middleware interceptor filter", "test spec",
    "color colour", "proxy proxies", "timeout deadline", "convert transform translate", "generate create build make",
    "prompt ask input", "column col", "address addr", "identifier id", "number num", "position pos",
    "statistics stats", "synchronize sync", "asynchronous async", "dependency requirement", "memory mem",
    "regular regex", "exporter export dump", "importer import", "walk traverse iterate visit", "evict expire purge",
    "quote escape", "telemetry metrics tracing analytics",
)  # fmt: skip
"""Each group: words that stand for one idea in code of any kind."""

PHRASES = {
    "command[ -]line(?: interface)?": "cli command", "user interface": "ui", "regular expressions?": "regex",
    "environment variables?": "environment", "web sockets?": "websocket", "(?:log|sign) in": "login",
    "shut down": "shutdown", "time out": "timeout", "access control lists?": "acl", "rate limit(?:ing)?": "ratelimit",
    "not found": "notfound 404",
}  # fmt: skip
"""Several words that code writes as one, as patterns."""

OTHER_LANGUAGES = {
    "身份验证": "authentication", "认证": "authentication", "認証": "authentication", "登录": "login",
    "登錄": "login", "ログイン": "login", "授权": "authorization", "权限": "permission", "権限": "permission",
    "配置": "configuration", "設定": "configuration", "设置": "settings", "解析": "parse", "路由": "route",
    "缓存": "cache", "キャッシュ": "cache", "日志": "log", "ログ": "log", "数据库": "database",
    "データベース": "database", "请求": "request", "リクエスト": "request", "响应": "response",
    "レスポンス": "response", "超时": "timeout", "タイムアウト": "timeout", "重定向": "redirect",
    "リダイレクト": "redirect", "重试": "retry", "错误": "error", "エラー": "error", "异常": "exception",
    "例外": "exception", "测试": "test", "テスト": "test", "会话": "session", "セッション": "session",
    "模板": "template", "テンプレート": "template", "命令行": "cli", "コマンドライン": "cli", "上传": "upload",
    "下载": "download", "加密": "encrypt", "暗号": "encrypt", "压缩": "compress", "圧縮": "compress",
    "序列化": "serialize", "密码": "password", "パスワード": "password", "连接": "connection", "接続": "connection",
    "消息": "message", "线程": "thread", "并发": "concurrency", "插件": "plugin", "プラグイン": "plugin",
    "调度": "schedule", "验证": "validate", "検証": "validate", "인증": "authentication", "설정": "configuration",
    "로그인": "login", "캐시": "cache", "오류": "error", "요청": "request", "응답": "response",
}  # fmt: skip
"""The commonest programming words of languages that share no letters with English names."""

FILLERS = (
    "在哪里 在哪儿 哪里 哪个 哪些 在哪 什么 怎么样 怎么 如何 为什么 是否 处理 实现 代码 文件 函数 查找 找到 请 的 "
    "了 吗 是 在 被 把 和 与 どこで どこに どこ どのように どの ですか ますか されている されて している います "
    "します する コード ファイル 処理 実装 の は が を に で 어디에서 어디서 어디에 어디 어떻게 처리 구현 코드 "
    "파일 됩니까 되나요 합니까 하나요 은 는 을 를"
).split()
"""Grammar and question words of those languages, which are written without spaces."""
