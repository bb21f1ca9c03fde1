"""What the planner knows of English and of programming in general, and nothing of any project.

Every entry has to be true for most code bases. A word list that helps one package and no other
does not belong here.
"""

from __future__ import annotations

GRAMMAR = frozenset(
    # questions and requests
    "where what which who whom whose why when how find locate show tell list give explain describe look search see me "
    "please can could would should will shall may might must do does did done doing is are was were be been being am "
    "has have had having get gets got getting want wants need needs needed know let lets help "
    # grammar
    "a an the this that these those there here it its it's their them they he she we us our you your my mine i "
    "and or but nor so if then else than as at by for from in into of off on onto out over to up with within without "
    "about above after again against all also any around because before between both down during each either every "
    "few further just more most much no not now once only other own same some such through too under until very via "
    "while per like e.g eg i.e etc using used use uses actually really exactly way ways kind sort thing things bit "
    # the same in other languages, as far as it is no English word
    "wo wird werden der das ein eine einen ist sind wie und oder où est sont le la les des du une et ou donde dónde "
    "está están el los las como cómo se en de il lo gli dove come".split()
)
"""What sentences are made of."""

STOP = GRAMMAR | frozenset(
    # the place that is asked for
    "code file files repo repository project codebase source module modules package library program software place "
    "places location part parts section line lines implementation implemented implement implements implementing "
    "defined define defines definition definitions defining declared declare declares handled handle handles handling "
    "happen happens happening live lives located logic responsible decide decides decided deal deals perform performs "
    "performed done work works working function functions method methods take takes place place taken "
    "directly becomes become gets turned turn turns happen come comes go goes called calls thorough thoroughly quick "
    "quickly medium explore exploration breadth relevant related overview".split()
)
"""Dropped: grammar, and words for the place that is asked for."""

WEAK = frozenset(
    "create created creates creating make makes made build builds built building store stored stores storing save "
    "saved saves read reads reading write writes written writing load loaded loads loading run runs running start "
    "started starts stop stopped set sets send sent sends receive received check checks checked checking add added "
    "adds remove removed removes change changed changes update updated updates return returned returns call keep "
    "kept keeps raise raised raises throw thrown process processed processes determine determines determined find "
    "found show shown produce produced new old long short many first last next name names value values type types "
    "object objects data item items user users string strings text class classes support supported supports main "
    "base default common general different single multiple class-based given result results allow allowed allows "
    "apply applied applies automatically manage managed manages manager control controlled controls choose chosen "
    "provide provided provides open opened opens close closed closes system application app server client request "
    "requests response command interface".split()
)
"""Carries meaning, but so many files share it that it decides little by itself."""

GROUPS: tuple[str, ...] = (
    "authentication authenticate auth login signin credential",
    "authorization authorize permission acl access policy",
    "permission allow approve policy",
    "configuration config conf settings options preferences",
    "cli argparse argv main commandline",
    "database db sql",
    "delete remove erase unlink drop",
    "exception error failure",
    "log logger logging",
    "store save persist storage dump",
    "load read restore open",
    "send transmit emit post publish dispatch",
    "receive recv consume",
    "start launch spawn boot run fork",
    "stop shutdown terminate kill close",
    "serialize encode dump marshal",
    "deserialize decode unmarshal",
    "parse parser lexer tokenize",
    "compress gzip deflate zip",
    "decompress decode inflate unpack extract",
    "duplicate dedupe dupe unique",
    "retry backoff attempt",
    "throttle ratelimit limit quota",
    "cache memoize",
    "schedule cron timer periodic",
    "route router url endpoint dispatch",
    "template render view",
    "validate check verify",
    "render draw display paint",
    "environment env",
    "directory folder dir",
    "repository repo",
    "argument arg param parameter",
    "parameter param arg",
    "message msg",
    "request req",
    "response resp reply",
    "context ctx",
    "connection conn connect",
    "command cmd",
    "function func fn callable",
    "temporary tmp temp",
    "document doc",
    "password passwd secret",
    "format fmt formatter",
    "image img picture",
    "translation i18n locale gettext",
    "concurrency thread pool worker",
    "hash digest checksum",
    "encrypt cipher crypto",
    "token tokenizer lexer",
    "undo revert rollback restore",
    "conversation history message chat",
    "summary summarize compact",
    "dns resolver",
    "websocket ws",
    "upload publish",
    "download fetch",
    "find discover locate search",
    "merge combine join",
    "copy clone duplicate",
    "plugin extension addon",
    "event signal hook listener",
    "middleware interceptor filter",
    "test spec",
    "color colour",
    "proxy proxies",
    "timeout deadline",
    "convert transform translate",
    "generate create build make",
    "prompt ask input",
    "column col",
    "address addr",
    "identifier id",
    "number num",
    "position pos",
    "statistics stats",
    "synchronize sync",
    "asynchronous async",
    "dependency requirement",
    "memory mem",
    "regular regex",
    "exporter export dump",
    "importer import",
    "walk traverse iterate visit",
    "evict expire purge",
    "quote escape",
    "telemetry metrics tracing analytics",
)
"""Each group: words that stand for one idea in code of any kind."""

PHRASES: tuple[tuple[str, str], ...] = (
    ("command line interface", "cli command"),
    ("command-line interface", "cli command"),
    ("command line", "cli command"),
    ("command-line", "cli command"),
    ("user interface", "ui"),
    ("regular expression", "regex"),
    ("regular expressions", "regex"),
    ("environment variable", "environment"),
    ("environment variables", "environment"),
    ("web socket", "websocket"),
    ("web sockets", "websocket"),
    ("log in", "login"),
    ("sign in", "login"),
    ("shut down", "shutdown"),
    ("time out", "timeout"),
    ("access control list", "acl"),
    ("access control lists", "acl"),
    ("rate limit", "ratelimit"),
    ("rate limiting", "ratelimit"),
    ("not found", "notfound 404"),
    ("host name", "hostname"),
    ("host names", "hostname"),
    ("file name", "filename"),
    ("user name", "username"),
)
"""Several words that code writes as one."""

OTHER_LANGUAGES: tuple[tuple[str, str], ...] = (
    ("身份验证", "authentication"), ("认证", "authentication"), ("認証", "authentication"), ("登录", "login"),
    ("登錄", "login"), ("ログイン", "login"), ("授权", "authorization"), ("权限", "permission"), ("権限", "permission"),
    ("配置", "configuration"), ("設定", "configuration"), ("设置", "settings"), ("解析", "parse"), ("路由", "route"),
    ("缓存", "cache"), ("キャッシュ", "cache"), ("日志", "log"), ("ログ", "log"), ("数据库", "database"),
    ("データベース", "database"), ("请求", "request"), ("リクエスト", "request"), ("响应", "response"),
    ("レスポンス", "response"), ("超时", "timeout"), ("タイムアウト", "timeout"), ("重定向", "redirect"),
    ("リダイレクト", "redirect"), ("重试", "retry"), ("错误", "error"), ("エラー", "error"), ("异常", "exception"),
    ("例外", "exception"), ("测试", "test"), ("テスト", "test"), ("会话", "session"), ("セッション", "session"),
    ("模板", "template"), ("テンプレート", "template"), ("命令行", "cli"), ("コマンドライン", "cli"),
    ("上传", "upload"), ("下载", "download"), ("加密", "encrypt"), ("暗号", "encrypt"), ("压缩", "compress"),
    ("圧縮", "compress"), ("序列化", "serialize"), ("密码", "password"), ("パスワード", "password"),
    ("连接", "connection"), ("接続", "connection"), ("消息", "message"), ("权限", "permission"), ("线程", "thread"),
    ("并发", "concurrency"), ("插件", "plugin"), ("プラグイン", "plugin"), ("调度", "schedule"), ("验证", "validate"),
    ("検証", "validate"), ("인증", "authentication"), ("설정", "configuration"), ("로그인", "login"),
    ("캐시", "cache"), ("오류", "error"), ("요청", "request"), ("응답", "response"),
)  # fmt: skip
"""The commonest programming words of languages that share no letters with English names."""

FILLERS = (
    "在哪里 在哪儿 哪里 哪个 哪些 在哪 什么 怎么样 怎么 如何 为什么 是否 处理 实现 代码 文件 函数 查找 找到 请 的 "
    "了 吗 是 在 被 把 和 与 どこで どこに どこ どのように どの ですか ますか されている されて している います "
    "します する コード ファイル 処理 実装 の は が を に で 어디에서 어디서 어디에 어디 어떻게 처리 구현 코드 "
    "파일 됩니까 되나요 합니까 하나요 은 는 을 를"
).split()
"""Grammar and question words of those languages, which are written without spaces."""
