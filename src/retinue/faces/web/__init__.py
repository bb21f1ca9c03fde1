"""The page that `retinue serve` shows: plain ES modules and style sheets, shipped as they are written.

There is no build step. `index.html` loads `app/main.js`; `vendor/` has Preact, htm and signals with their licences and
checksums (`vendor/versions.json`, checked by a test).

    app/      state shared by all views: address, connection, requests, runs, keys
    parts/    what several views show: Markdown, diffs, calls, charts, lists
    views/    one file for each view
    style/    colours and spacing, layout, parts
"""
