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

// TestBrowser looks at every page on a phone, 360 pixels wide: nothing is wider than the screen,
// and all texts have enough contrast, in light and in dark colours. Then it searches.
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
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(360, 740, chromedp.EmulateScale(1))); err != nil {
		t.Fatal(err)
	}
	for _, p := range pages {
		if err := chromedp.Do(ctx, chromedp.Navigate(server.URL+"/"+p)); err != nil {
			t.Fatal(p, err)
		}
		if width := eval[int](t, ctx, "document.documentElement.scrollWidth"); width > 360 {
			t.Errorf("%s is %d pixels wide", p, width)
		}
		for _, scheme := range []string{"light", "dark"} {
			if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}); err != nil {
				t.Fatal(err)
			}
			for _, bad := range eval[[]string](t, ctx, badContrast) {
				t.Errorf("%s, %s: too little contrast: %s", p, scheme, bad)
			}
		}
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
