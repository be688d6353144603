// Package console holds tests only: of the console's page (lockkeeper/server/ops/console/web) in a
// real browser, Debian's chromium, driven through the DevTools protocol. TestPage plays answers of
// docs/api.md to it, also those that a cluster gives seldom; TestLive has a cluster of three real
// members under load, and clients with locks that the page has to show; TestMany ten thousand
// locks.
//
// TestHistoryAgainstLedger has no browser: it compares the history of each member, over kills of
// members, with the ledgers of clients of three libraries ("-ledger 5m": for longer).
//
// No test passes with an error in the browser's console, or a request to another origin.
package console
