package door

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// hiddenRequest is the request that those of smuggled hide.
const hiddenRequest = "GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n"

// smuggled are requests with hiddenRequest behind the end that one of two programs sees.
func smuggled() map[string]string {
	forms := map[string]string{}
	n := len(hiddenRequest)
	for name, headers := range map[string]string{
		"length and chunks":        fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n", n+5),
		"chunks and length":        fmt.Sprintf("Transfer-Encoding: chunked\r\nContent-Length: %d\r\n", n+5),
		"chunks and no length":     "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
		"chunks, then identity":    "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
		"chunks twice":             "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
		"chunks in a folded line":  fmt.Sprintf("Transfer-Encoding:\r\n chunked\r\nContent-Length: %d\r\n", n+5),
		"chunks behind a blank":    fmt.Sprintf("Transfer-Encoding : chunked\r\nContent-Length: %d\r\n", n+5),
		"chunks behind a bare LF":  "X: a\nTransfer-Encoding: chunked\r\n",
		"chunks behind a bare CR":  "X: a\rTransfer-Encoding: chunked\r\n",
		"chunks behind a tab":      "Transfer-Encoding:\tchunked\r\n",
		"chunks of another kind":   "Transfer-Encoding: xchunked\r\n",
		"chunks that are zipped":   "Transfer-Encoding: gzip, chunked\r\n",
		"chunks behind a vertical": "Transfer-Encoding: \x0bchunked\r\n",
		"chunks in capitals":       "TRANSFER-ENCODING: CHUNKED\r\n",
		"a length as a trailer":    fmt.Sprintf("Transfer-Encoding: chunked\r\nTrailer: Content-Length\r\nContent-Length: %d\r\n", n),
	} {
		forms[name] = "GET /live HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n0\r\n\r\n" + hiddenRequest
	}
	for name, headers := range map[string]string{
		"two lengths":            fmt.Sprintf("Content-Length: 0\r\nContent-Length: %d\r\n", n),
		"two lengths, reversed":  fmt.Sprintf("Content-Length: %d\r\nContent-Length: 0\r\n", n),
		"the same length twice":  fmt.Sprintf("Content-Length: %d\r\nContent-Length: %[1]d\r\n", n),
		"a list of lengths":      fmt.Sprintf("Content-Length: 0, %d\r\n", n),
		"a length with a sign":   fmt.Sprintf("Content-Length: +%d\r\n", n),
		"a negative length":      "Content-Length: -1\r\n",
		"a length in hex":        "Content-Length: 0x0\r\n",
		"a length of 2^64":       "Content-Length: 18446744073709551616\r\n",
		"an empty length":        "Content-Length: \r\n",
		"a length behind blank":  fmt.Sprintf("Content-Length : %d\r\n", n),
		"a length in a fold":     fmt.Sprintf("X: a\r\n Content-Length: %d\r\n", n),
		"a length behind a LF":   fmt.Sprintf("X: a\nContent-Length: %d\r\n", n),
		"a length behind a NUL":  fmt.Sprintf("X: a\x00\r\nContent-Length: %d\r\n", n),
		"a length of leading 0s": fmt.Sprintf("Content-Length: 0%d\r\n", n),
		"a length":               fmt.Sprintf("Content-Length: %d\r\n", n),
		"two hosts":              "Host: other\r\n",
	} {
		forms[name] = "GET /live HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n" + hiddenRequest
	}
	for name, chunk := range map[string]string{
		"an extension with a bare LF": "0;a\n\r\n", "an end with bare LFs": "0\n\n", "an extension with a quote": "0;a=\"\r\n",
		"a negative chunk": "-1\r\n\r\n", "a chunk of 0x0": "0x0\r\n\r\n", "a chunk of 2^64": "10000000000000000\r\n\r\n",
		"a long extension": "1;" + strings.Repeat("a", 20_000) + "\r\nx\r\n0\r\n\r\n", "a chunk that is longer": "1\r\nxx0\r\n\r\n",
		"a chunk behind a blank": " 0\r\n\r\n", "a trailer with a length": "0\r\nContent-Length: 40\r\n\r\n",
		"chunks in an extension": "1;\r\nx\r\n0;\r\n\r\n", "chunks": "0\r\n\r\n",
	} {
		forms[name] = "GET /live HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk + hiddenRequest
	}
	forms["chunks of HTTP/1.0"] = "GET /live HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hiddenRequest
	forms["lines that end with LF"] = "GET /live HTTP/1.1\nHost: localhost\n\n" + hiddenRequest
	forms["a length for a snapshot"] = fmt.Sprintf("POST /commands/restore HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", n) + hiddenRequest
	forms["a body that is too long"] = fmt.Sprintf("POST /leader HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", BodyBytes+1+n,
		strings.Repeat("x", BodyBytes+1)) + hiddenRequest
	forms["a preface of HTTP/2"] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + hiddenRequest
	forms["no host"] = "GET /live HTTP/1.1\r\n\r\n" + hiddenRequest
	forms["a head of 100 kB"] = "GET /live HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("a", 100_000) + "\r\n\r\n" + hiddenRequest
	return forms
}

var statusLine = regexp.MustCompile(`HTTP/1\.[01] (\d+)`)

// live answers GET /live.
var live = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet || r.URL.Path != "/live" {
		http.NotFound(w, r)
		return
	}
	WriteJSON(w, http.StatusOK, true)
})

// exchange sends bytes to the HTTP port, and returns the status of each answer that comes before
// the connection ends. It fails if it does not end.
func exchange(t *testing.T, p *Port, request string) (statuses []string) {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	_, _ = io.WriteString(c, request) // the member may have ended the connection
	answers, err := io.ReadAll(c)
	if ne := net.Error(nil); errors.As(err, &ne) && ne.Timeout() {
		t.Errorf("the connection goes on after %q", answers[:min(len(answers), 200)])
	}
	for _, m := range statusLine.FindAllSubmatch(answers, -1) {
		statuses = append(statuses, string(m[1]))
	}
	return statuses
}

// No request hides another one: whatever two programs may take for different ends is refused, and
// nothing behind a body is answered.
func TestNoRequestIsSmuggled(t *testing.T) {
	p := startPort(t, live)
	for name, request := range smuggled() {
		if got := exchange(t, p, request); len(got) > 1 {
			t.Errorf("%s: answered %v", name, got)
		} else if len(got) == 1 && got[0] == "200" && !strings.Contains(request, "\r\nTransfer-Encoding: chunked\r\n\r\n") &&
			!slices.Contains([]string{"a length", "a length of leading 0s", "chunks in capitals", "chunks behind a tab", "chunks of HTTP/1.0"}, name) {
			t.Errorf("%s: taken", name)
		}
	}
	// Requests that are not ambiguous are answered in their order.
	const plain = "GET /live HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
	last := strings.Replace(plain, "Content-Length: 0", "Connection: close", 1)
	if got := exchange(t, p, strings.Repeat(plain, 9)+last); len(got) != 10 || slices.ContainsFunc(got, func(s string) bool { return s != "200" }) {
		t.Errorf("ten requests in a row: %v", got)
	}
}

// framing sees the same in whatever parts the bytes arrive.
func TestFramingOfParts(t *testing.T) {
	forms := smuggled()
	forms["two plain ones"] = hiddenRequest + hiddenRequest
	for name, request := range forms {
		whole := &framing{}
		n, err := whole.take([]byte(request))
		for _, size := range []int{1, 2, 3, 7, 64, 1000} {
			parts, taken, partErr := &framing{}, 0, error(nil)
			for part := range slices.Chunk([]byte(request), size) {
				var m int
				if m, partErr = parts.take(part); partErr != nil {
					break
				}
				taken += m
			}
			if partErr != err || parts.isLast() != whole.isLast() || err == nil && taken != n || err != nil && taken > n+lineKept+size {
				t.Errorf("%s in parts of %d: %v after %d, last %v; whole: %v after %d, last %v", name, size, partErr, taken, parts.isLast(), err, n, whole.isLast())
			}
		}
	}
}

// An act of the console, with a body, is answered, and ends its connection.
func TestConnectionsEndBehindABody(t *testing.T) {
	p := startPort(t, live)
	resp, err := http.Post("http://"+p.Addr().String()+"/leader", "text/plain", strings.NewReader("x"))
	if err != nil || !resp.Close {
		t.Fatalf("%+v, %v", resp, err)
	}
	_ = resp.Body.Close()
}

// FuzzFraming: whatever arrives, in whatever parts, framing sees the same, and lets net/http see
// nothing behind the end of a refused request.
func FuzzFraming(f *testing.F) {
	for _, request := range smuggled() {
		if len(request) < 2000 {
			f.Add([]byte(request), 7)
		}
	}
	f.Fuzz(func(t *testing.T, request []byte, size int) {
		if len(request) == 0 || size < 1 {
			return
		}
		whole, parts := &framing{}, &framing{}
		n, err := whole.take(request)
		if n < 0 || n > len(request) || (err == nil) != (n == len(request)) && err == nil {
			t.Fatalf("%d of %d bytes, %v", n, len(request), err)
		}
		var partErr error
		for part := range slices.Chunk(request, size) {
			if _, partErr = parts.take(part); partErr != nil {
				break
			}
		}
		if partErr != err || parts.isLast() != whole.isLast() {
			t.Errorf("in parts of %d: %v, last %v; whole: %v, last %v", size, partErr, parts.isLast(), err, whole.isLast())
		}
	})
}
