"""The page that `retinue serve` shows: plain ES modules and style sheets without a build step.

The page neither interprets events nor defines words for states. It draws the runs, entries and words that
`retinue.app.live_views` sends.

`index.html` loads `app/main.js`; `vendor/` has Preact, htm and signals with their licences and checksums
(`vendor/versions.json`, which a test checks).

    app/      state shared by all views: address, connection, requests, runs, stories, words, keys
    parts/    components of several views: Markdown, diffs, calls, charts, lists
    views/    one file for each view
    style/    colours and spacing, layout, parts
"""
