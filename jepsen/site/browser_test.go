package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"lockkeeper/jepsen"
	"lockkeeper/jepsen/report"
	"lockkeeper/jepsen/workload"
)

// openTab starts chromium with an empty profile, or skips the test if there is none.
func openTab(t *testing.T) context.Context {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a browser; not with -short")
	}
	program, err := exec.LookPath("chromium")
	if err != nil {
		jepsen.Need(t, fmt.Errorf("chromium: %w (apt-get install chromium)", jepsen.ErrMissing))
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program),
		chromedp.NoSandbox, // the tests may be run by root
		chromedp.DisableGPU, chromedp.UserDataDir(t.TempDir()))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	ctx, closeBrowser := chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(closeBrowser)
	ctx, closeTab := chromedp.NewContext(ctx)
	t.Cleanup(closeTab)
	return ctx
}

// eval is the value of a JavaScript expression; promises are awaited.
func eval[T any](t *testing.T, ctx context.Context, expression string) T {
	t.Helper()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatalf("%.100s: %v", expression, err)
	}
	return value
}

// badContrast lists the colours of texts with a contrast below 4.5 to 1 against their background.
const badContrast = `(() => {
	const parse = (c) => c.match(/[\d.]+/g).map(Number);
	const light = (c) => {
		const [r, g, b] = c.map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const bad = new Set(), walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	let texts = 0;
	for (let n; (n = walker.nextNode()); ) {
		if (!n.data.trim() || !n.parentElement.checkVisibility()) continue;
		texts++;
		let back = [0, 0, 0, 0];
		for (let e = n.parentElement; e; e = e.parentElement) {
			back = parse(getComputedStyle(e).backgroundColor);
			if (back.length === 3 || back[3] === 1) break;
		}
		const ink = getComputedStyle(n.parentElement).color;
		const [a, b] = [light(parse(ink).slice(0, 3)), light(back.slice(0, 3))].sort((x, y) => y - x);
		if ((a + 0.05) / (b + 0.05) < 4.5) bad.add(ink + " on " + back + ": " + n.data.trim().slice(0, 40));
	}
	return texts === 0 ? ["no text"] : [...bad].slice(0, 5);
})()`

// holdPhone makes the screen 360 pixels wide.
func holdPhone(t *testing.T, ctx context.Context) {
	t.Helper()
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(360, 740, chromedp.EmulateScale(1))); err != nil {
		t.Fatal(err)
	}
}

// lookAt opens a page on the phone: nothing is wider than the screen, and all texts have enough
// contrast, in light and in dark colours.
func lookAt(t *testing.T, ctx context.Context, url string) {
	t.Helper()
	if err := chromedp.Do(ctx, chromedp.Navigate(url)); err != nil {
		t.Fatal(url, err)
	}
	if width := eval[int](t, ctx, "document.documentElement.scrollWidth"); width > 360 {
		t.Errorf("%s is %d pixels wide", url, width)
	}
	for _, scheme := range []string{"light", "dark"} {
		if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}); err != nil {
			t.Fatal(err)
		}
		for _, bad := range eval[[]string](t, ctx, badContrast) {
			t.Errorf("%s, %s: too little contrast: %s", url, scheme, bad)
		}
	}
}

// TestReport looks at the page of a run in the same way, with a broken promise, a promise that
// nothing checked, and a lost grant, all of it unfolded.
func TestReport(t *testing.T) {
	ctx := openTab(t)
	const s = time.Second
	long := strings.Repeat("word", 30)
	r := &report.Run{
		Title: "lock on 3 members", Target: "lockkeeper", Took: 9 * s, Again: "go run ./cmd/jepsen run " + long,
		Members:  []report.Member{{Name: "m1", Addr: "10.0.0.1:1"}},
		Settings: []report.Setting{{Name: "members", Value: "3"}}, Complaints: []string{long},
		Faults: []report.Fault{{Kind: "partition", On: "m1 hears nobody", From: s, To: 5 * s}, {Kind: report.NoMajority, From: 2 * s, To: 3 * s}},
		Ops: []jepsen.Op{
			{Time: s / 2, Worker: "lock-1", Kind: jepsen.Info, F: jepsen.FConnected, Member: "10.0.0.1:1"},
			{Time: s, Worker: "lock-1", Contender: "lock-1/1", Kind: jepsen.OK, F: jepsen.FAcquire, Lock: "/lock/mutex", Token: 1 << 40, Session: "0x1a2236e01840002"},
			{Time: 4 * s, Worker: "lock-1", Contender: "lock-1/1", Kind: jepsen.Info, F: jepsen.FLost, Lock: "/lock/mutex", Value: "2700", Note: long},
			{Time: 6 * s, Worker: "lock-2", Contender: "lock-2/1", Kind: jepsen.OK, F: jepsen.FAcquire, Lock: "/lock/mutex"},
		},
	}
	r.Verdicts = []workload.Verdict{{Checker: "lock", Promise: "C6", Valid: workload.No, Text: long, Checked: 2, Unit: "grants",
		Violations: []workload.Violation{{Text: long, Ops: r.Ops}}}, {Checker: "belief", Promise: "C6", Valid: workload.Unknown}}
	dir := t.TempDir()
	if err := report.Write(dir, t.TempDir(), r); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	t.Cleanup(server.Close)
	holdPhone(t, ctx)
	lookAt(t, ctx, server.URL)
	if shown := eval[bool](t, ctx, "document.querySelector('#losses + p + p + details table').checkVisibility()"); !shown {
		t.Error("the story of the lost grant is not shown")
	}
}

// TestBrowser looks at every page of the site, and searches.
func TestBrowser(t *testing.T) {
	ctx := openTab(t)
	out := t.TempDir()
	if _, err := build(repository, out); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.FileServer(http.Dir(out)))
	t.Cleanup(server.Close)
	pages, sources := []string{""}, []string(nil) // the first one is the index
	for p := range read(t, out) {
		switch stem, ok := strings.CutSuffix(p, ".html"); {
		case !ok || p == "index.html":
		case path.Ext(stem) == "":
			pages = append(pages, p)
		default:
			sources = append(sources, p)
		}
	}
	if len(sources) == 0 {
		t.Fatal("no page shows a file of the repository")
	}
	slices.Sort(sources)
	pages = append(pages, sources[0]) // they differ in nothing but the text
	holdPhone(t, ctx)
	for _, p := range pages {
		lookAt(t, ctx, server.URL+"/"+p)
	}
	got := eval[string](t, ctx, `(async () => {
		input.value = "how do I replace a member?";
		await search();
		return [...found.querySelectorAll("a")].map((a) => a.href).join(" ") + " " +
			(document.documentElement.scrollWidth <= 360 ? "fits" : "too wide");
	})()`)
	if want := server.URL + "/docs/cluster.html#"; !strings.Contains(got, want) || !strings.Contains(got, " fits") {
		t.Errorf("a search for the replacement of a member finds %s, not %s, or does not fit", got, want)
	}
}
