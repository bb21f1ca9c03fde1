"""The page that `retinue serve` shows: plain ES modules and style sheets, shipped as they are written.

The page interprets no event and has no words of its own for states: it draws the runs, entries and words that
`retinue.app.live_views` sends.

There is no build step. `index.html` loads `app/main.js`; `vendor/` has Preact, htm and signals with their licences and
checksums (`vendor/versions.json`, checked by a test).

    app/      state shared by all views: address, connection, requests, runs, stories, words, keys
    parts/    what several views show: Markdown, diffs, calls, charts, lists
    views/    one file for each view
    style/    colours and spacing, layout, parts
"""
