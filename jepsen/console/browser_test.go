package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"lockkeeper/jepsen"
)

// patience is how long a test waits for the page to show something.
const patience = 20 * time.Second

// A browser is one tab of chromium. Everything that the page complains about, and
// every address that it requests, is kept.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu         sync.Mutex
	allowed    map[string]bool // origins
	complaints []string
	tolerant   bool  // failed requests are no complaint: the member is being killed
	received   int64 // bytes of answers, as they were on the wire
}

// chromium is the browser that all tests share; each has a tab of its own. Its profile is new and
// empty. closeChromium ends it.
var (
	chromium = sync.OnceValues(func() (context.Context, error) {
		path, err := exec.LookPath("chromium")
		if err != nil {
			return nil, fmt.Errorf("chromium: %w (apt-get install chromium)", jepsen.ErrMissing)
		}
		profile, err := os.MkdirTemp("", "lockkeeper-chromium-")
		if err != nil {
			return nil, err
		}
		options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path),
			chromedp.NoSandbox, // the tests may be run by root
			chromedp.DisableGPU, chromedp.UserDataDir(profile),
			chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true))
		ctx, closeAllocator := chromedp.NewExecAllocator(context.Background(), options...)
		ctx, closeTab := chromedp.NewContext(ctx)
		closeChromium = func() {
			closeTab()
			closeAllocator()
			_ = os.RemoveAll(profile)
		}
		return ctx, chromedp.Do(ctx)
	})
	closeChromium = func() {}
)

// openBrowser opens a tab, or skips the test if there is no browser.
// Servers are started before it: a stream that a server cuts while the tab is open is a complaint.
func openBrowser(t *testing.T) *browser {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a browser; not with -short")
	}
	browserCtx, err := chromium()
	jepsen.Need(t, err)
	ctx, closeTab := chromedp.NewContext(browserCtx)
	t.Cleanup(closeTab)
	b := &browser{t: t, ctx: ctx, allowed: make(map[string]bool)}
	if err := chromedp.Listen(ctx, b.see); err != nil {
		t.Fatalf("chromium opens no tab: %v", err)
	}
	call(b, log.Enable, cdp.Empty{})
	call(b, network.Enable, network.EnableParams{})
	t.Cleanup(b.check)
	return b
}

// see gets the browser's events.
func (b *browser) see(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.complain("exception: %s %+v", e.ExceptionDetails.Text, e.ExceptionDetails.Exception)
	case *runtime.EventConsoleAPICalled:
		b.complain("console.%s: %+v", e.Type, e.Args)
	case *log.EventEntryAdded:
		if !b.tolerant || e.Entry.Source != "network" {
			b.complain("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL)
		}
	case *page.EventJavascriptDialogOpening:
		b.complain("a dialogue: %s", e.Message)
	case *network.EventRequestWillBeSent:
		u, err := url.Parse(e.Request.URL)
		if err != nil || (u.Scheme != "about" && u.Scheme != "data" && !b.allowed[u.Host]) {
			b.complain("a request to %s", e.Request.URL)
		}
	case *network.EventDataReceived:
		b.received += e.EncodedDataLength
	}
}

func (b *browser) complain(format string, args ...any) {
	b.complaints = append(b.complaints, fmt.Sprintf(format, args...))
}

// check fails the test for every complaint so far.
func (b *browser) check() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.complaints {
		b.t.Errorf("the browser complains: %s", c)
	}
	b.complaints = nil
}

// tolerate has failed requests be no complaint, or be one again.
func (b *browser) tolerate(yes bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tolerant = yes
}

// bytesReceived is how much has been received so far.
func (b *browser) bytesReceived() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.received
}

// call sends a command of the DevTools protocol.
func call[P, R any](b *browser, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	result, err := chromedp.Call(b.ctx, command, params)
	if err != nil {
		b.t.Fatalf("%s: %v", command.Method, err)
	}
	return result
}

// do runs actions.
func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// eval is the value of a JavaScript expression; promises are awaited.
func eval[T any](b *browser, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 2*patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%.200s: %v", expression, err)
	}
	return value
}

// quoted is a text as JavaScript has it.
func quoted(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string
	}
	return string(b)
}

// look is how a page is looked at.
type look struct {
	name          string
	width, height int64
	dark          bool
}

var (
	desktop = look{"desktop", 1280, 860, false}
	phone   = look{"phone", 360, 740, false}
)

func (l look) inDark() look { l.dark, l.name = true, l.name+"-dark"; return l }

// resize sets size and colour scheme.
func (b *browser) resize(l look) {
	b.t.Helper()
	scheme := "light"
	if l.dark {
		scheme = "dark"
	}
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}})
	b.do(chromedp.EmulateViewport(l.width, l.height, chromedp.EmulateScale(1)))
}

// open loads the console anew at an address, and from then on allows requests to its origin.
func (b *browser) open(address, hash string) {
	b.t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		b.t.Fatal(err)
	}
	b.mu.Lock()
	b.allowed[u.Host] = true
	b.mu.Unlock()
	b.do(chromedp.Navigate("about:blank"), chromedp.Navigate(address+"#/"+hash))
}

// goTo changes the view within the page, as a link does.
func (b *browser) goTo(hash string) {
	b.t.Helper()
	eval[string](b, "location.hash = "+quoted("#/"+hash))
}

// await waits until an expression is true.
func (b *browser) await(what, expression string) {
	b.t.Helper()
	b.awaitWithin(patience, what, expression)
}

// awaitWithin is await with a patience of its own, and returns how long it took.
func (b *browser) awaitWithin(limit time.Duration, what, expression string) time.Duration {
	b.t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(b.ctx, limit)
	defer cancel()
	for {
		ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
		if ok && err == nil {
			return time.Since(began)
		}
		select {
		case <-ctx.Done():
			b.t.Fatalf("the page does not show %s within %v (%v); it shows:\n%s", what, limit, err, b.text())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// text is all of the text that the page shows.
func (b *browser) text() string {
	return eval[string](b, "document.body.innerText")
}

// shows waits until an element's text has a part.
func (b *browser) shows(selector, part string) {
	b.t.Helper()
	b.await(fmt.Sprintf("%q in %s", part, selector),
		fmt.Sprintf("[...document.querySelectorAll(%s)].some((e) => e.innerText.includes(%s))", quoted(selector), quoted(part)))
}

// press presses keys: text as it is, or a key of package kb.
func (b *browser) press(keys string) {
	b.t.Helper()
	b.do(chromedp.KeyEvent(keys))
}

// click clicks an element in its middle, as a mouse does.
func (b *browser) click(selector string) {
	b.t.Helper()
	b.do(chromedp.Click(chromedp.CSS(selector)))
}

// clickInto clicks a field until it takes the typed text. Late content above it may move it away
// under the mouse.
func (b *browser) clickInto(selector string) {
	b.t.Helper()
	focused := "document.activeElement === document.querySelector(" + quoted(selector) + ")"
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		b.click(selector)
		if eval[bool](b, focused) {
			return
		}
	}
	b.await("the focus in "+selector, focused)
}

// clickFor clicks an element until another one shows a text. Late content above it may move it away
// under the mouse.
func (b *browser) clickFor(selector, shown, part string) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		b.click(selector)
		for range 20 {
			if eval[bool](b, fmt.Sprintf("[...document.querySelectorAll(%s)].some((e) => e.innerText.includes(%s))", quoted(shown), quoted(part))) {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	b.shows(shown, part)
}

// queueShown is the queue that the view of a lock shows: sessions, holders marked with "+".
const queueShown = `[...document.querySelectorAll('section[aria-labelledby="queue-h"] tbody tr')].map((row) =>
	(row.querySelector('[data-name=State]').innerText.includes('holds') ? '+' : '') + row.querySelector('a[title^="0x"]').title).join(' ')`

// showsQueue waits until the view of a lock shows this queue, and returns how long it took.
func (b *browser) showsQueue(want string) time.Duration {
	b.t.Helper()
	return b.awaitWithin(patience, "the queue "+want, "("+queueShown+") === "+quoted(want))
}

// join is a queue as queueShown has it.
func join(sessions ...string) string { return strings.Join(sessions, " ") }
