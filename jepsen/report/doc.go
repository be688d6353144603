// Package report makes what people read after a run: one HTML page that needs nothing beside itself, and the same as JSON.
//
//	Run        what happened: the history, the verdicts, the settings, the seed; the caller fills it in
//	Faults     when something was broken, found in the history unless the caller knows better
//	calls      each invoke with its end
//	series     latency and throughput by second
//	timeline   who did what when, a row for each client, in slices of time
//	page       the HTML: numbers become SVG here, and nowhere else
//
// The page has no outside resources and works without its script, which only shows the figures under the pointer. It is
// made of aggregates, so that it stays readable, and a few megabytes at most, however long the history is. The history
// itself is a file beside it, one operation a line.
//
// Everything is a pure function of a Run: the same Run gives the same bytes.
package report
