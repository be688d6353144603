package attack

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/wire"
)

// hidden is the outcome that nobody may see: an answer to a request inside of another one. Other
// outcomes of HTTP requests are the statuses of the answers.
const hidden = "hidden request answered"

// web are attacks on the HTTP port by requests.
func web() []Attack {
	statuses := func(more ...string) []string { return append(more, closed) }
	return []Attack{
		{
			Name: "http-forms", Port: HTTPPort,
			Sends: "requests that hide another one, huge heads, 100 requests at once, upgrades, while somebody asks /fence",
			May:   statuses("200", "400", "404", "405", "413", "417", "421", "431", "501", "505"), Least: 40, LeastBytes: 100_000,
			play: httpForms,
		},
		{
			Name: "http-scrapes", Port: HTTPPort,
			Sends: "metrics, monitor, watches, locks and trouble, by three scrapers, of 2,000 contenders for 100 locks with notes of 1 kB and of watches of any path",
			May:   statuses("200", "503"), Least: 15, LeastBytes: 3_000_000,
			play: scrapes,
		},
		{
			Name: "http-guesses", Port: HTTPPort,
			Sends: "guesses of the super user's password, from ten addresses, while somebody asks /fence and the super user logs in",
			May:   statuses("403", "429", "503"), Least: 100, LeastBytes: 10_000,
			play: httpGuesses,
		},
		{
			Name: "restores", Port: HTTPPort, Settings: limitSettings, Disk: true,
			Sends: "snapshots that are cut short, have a wrong bit, are noise, a zip bomb or endless, by the super user",
			May:   statuses("400", "409", "413"), Least: 10, LeastBytes: 10_000,
			play: restores,
		},
	}
}

// hiddenRequest stands behind the end of a request as one of two programs sees it.
const hiddenRequest = "GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"

// hiding are requests with hiddenRequest inside.
func hiding() (requests []string) {
	n := len(hiddenRequest)
	head := func(headers, body string) {
		requests = append(requests, "GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n"+headers+"\r\n"+body+hiddenRequest)
	}
	const chunked, last = "Transfer-Encoding: chunked\r\n", "0\r\n\r\n"
	for _, headers := range []string{
		fmt.Sprintf("Content-Length: %d\r\n", n+len(last)) + chunked, chunked + "Content-Length: 3\r\n", chunked + chunked,
		"Transfer-Encoding:\r\n chunked\r\nContent-Length: 3\r\n", "Transfer-Encoding : chunked\r\n", "X: a\n" + chunked,
		"Transfer-Encoding: \vchunked\r\n", "Transfer-Encoding: gzip, chunked\r\n", chunked, "X: a\r" + chunked,
	} {
		head(headers, last)
	}
	for _, headers := range []string{
		fmt.Sprintf("Content-Length: 0\r\nContent-Length: %d\r\n", n), fmt.Sprintf("Content-Length: %d\r\nContent-Length: 0\r\n", n),
		fmt.Sprintf("Content-Length: 0, %d\r\n", n), "Content-Length: +0\r\n", "Content-Length: -1\r\n", "Content-Length: 0x0\r\n",
		"Content-Length: 18446744073709551616\r\n", fmt.Sprintf("X: a\r\n Content-Length: %d\r\n", n),
		fmt.Sprintf("X: a\nContent-Length: %d\r\n", n), fmt.Sprintf("Content-Length: %d\r\n", n), "Host: other\r\n", "X: \x00\r\n",
	} {
		head(headers, "")
	}
	for _, chunk := range []string{"0;a\n\r\n", "0\n\n", "0;a=\"\r\n", "-1\r\n\r\n", "0x0\r\n\r\n", "10000000000000000\r\n\r\n",
		"1\r\nxx0\r\n\r\n", "1;" + strings.Repeat("a", 20_000) + "\r\nx\r\n0\r\n\r\n"} {
		head(chunked, chunk)
	}
	return append(requests, "GET /live HTTP/1.1\nHost: 127.0.0.1\n\n"+hiddenRequest, "GET /live HTTP/1.1\r\n\r\n"+hiddenRequest,
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+hiddenRequest, "GET /live HTTP/3.0\r\nHost: 127.0.0.1\r\n\r\n"+hiddenRequest)
}

// oddRequests are requests that are unusual, or too long. Each has at most one answer.
func oddRequests() []string {
	const host = "Host: 127.0.0.1\r\nConnection: close\r\n"
	return []string{
		"GET /live HTTP/1.1\r\n" + host + "X: " + strings.Repeat("a", 1_000_000) + "\r\n\r\n",
		"GET /live HTTP/1.1\r\n" + host + strings.Repeat("X: a\r\n", 100_000) + "\r\n",
		"GET /" + strings.Repeat("a", 1_000_000) + " HTTP/1.1\r\n" + host + "\r\n",
		"GET http://evil.example/members HTTP/1.1\r\nConnection: close\r\n\r\n",
		"CONNECT 127.0.0.1:1 HTTP/1.1\r\n" + host + "\r\n",
		"GET /live HTTP/1.1\r\n" + strings.Replace(host, "close", "Upgrade, HTTP2-Settings, close", 1) + "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
		"GET /live HTTP/1.1\r\n" + host + "Expect: 200-maybe\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\n" + host + "\r\n", "TRACE / HTTP/1.1\r\n" + host + "\r\n",
		"GET /api/v1/node?path=" + strings.Repeat("%2f", 4000) + " HTTP/1.1\r\n" + host + "\r\n",
	}
}

// httpForms sends each of these requests over a connection of its own, and 100 over one.
func httpForms(ctx context.Context, p *Play) error {
	const plain = "GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
	inARow := strings.Repeat(plain, 99) + strings.Replace(plain, "\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1)
	return p.whileFenced(ctx, func() error {
		for _, request := range slices.Concat(hiding(), oddRequests()) {
			if statuses, err := p.sees(p.attacked.HTTPAddr, 0, request); err != nil {
				return err
			} else if len(statuses) > 1 {
				p.saw(hidden)
			}
		}
		statuses, err := p.sees(p.attacked.HTTPAddr, 0, inARow)
		if err == nil && len(statuses) != 100 {
			return &harm{fmt.Sprintf("100 requests in a row have %d answers", len(statuses)), nil}
		}
		return err
	})
}

// sees is exchange, from an address of the attackers', and notes the outcome.
func (p *Play) sees(addr string, from int, request string) (statuses []string, err error) {
	statuses, err = p.exchange(addr, p.host(from), request)
	for _, status := range statuses {
		p.saw(status)
	}
	if len(statuses) == 0 {
		p.saw(closed)
	}
	return statuses, err
}

// exchange sends bytes to a port for HTTP over a connection of its own, and returns the status of
// each answer until the member ends the connection, which it has to.
func (p *Play) exchange(addr, from, request string) (statuses []string, err error) {
	c, err := p.dial(addr, from)
	if err != nil {
		return nil, nil
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	_, _ = io.WriteString(c, request) // the member may have ended the connection
	answers := bufio.NewReader(c)
	for {
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			if ne := net.Error(nil); errors.As(err, &ne) && ne.Timeout() {
				return nil, &harm{fmt.Sprintf("a connection is held behind %.60q", request), nil}
			}
			return statuses, nil
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		statuses = append(statuses, strconv.Itoa(resp.StatusCode))
	}
}

// whileFenced plays rounds, while somebody asks /fence from another address.
func (p *Play) whileFenced(ctx context.Context, round func() error) error {
	playing, end := context.WithCancel(context.Background())
	played := make(chan error, 1)
	go func() { played <- each(1, func(int) error { return rounds(playing, round) }) }()
	err := p.askFence(ctx, func() {})
	end()
	return errors.Join(err, <-played)
}

// superLogin is the header with which the super user comes.
const superLogin = "Authorization: digest " + jepsen.AdminAuth + "\r\n"

// scrapes makes many contended locks, and watches of paths that no node can have, and has three
// scrapers read all about them.
func scrapes(ctx context.Context, p *Play) error {
	const locks, contenders, noteBytes = 100, 20, 1000
	c, err := p.connect()
	if err != nil {
		return err
	}
	defer c.leave() // which ends the contenders
	note := fmt.Appendf(nil, `{"by":"lockkeeper/recipes","program":"eve","note":%q}`, strings.Repeat("n", noteBytes))
	for i := range locks {
		path := p.path(fmt.Sprint("contended", i))
		if err := c.make(path, nil); err != nil {
			return err
		}
		var ops []wire.MultiOp
		for range contenders {
			ops = append(ops, wire.MultiOp{Op: wire.OpCreate,
				Record: &wire.CreateRequest{Path: path + "/x-lock-", Data: note, ACL: wire.OpenACL, Mode: wire.ModeEphemeralSequential}})
		}
		if err := c.multi(ops); err != nil {
			return fmt.Errorf("%d contenders: %w", contenders, err)
		}
	}
	for _, path := range []string{"eve", "", "//", strings.Repeat("/d", 250_000), strings.Repeat("/", 500_000), strings.Repeat("e/", 250_000)} {
		if err := endOnly(c.do(wire.OpExists, wire.PathWatchRequest{Path: path, Watch: true})); err != nil {
			return err
		}
	}
	pages := []string{"/commands/monitor", "/commands/watches", "/commands/watches_by_path", "/commands/dump",
		"/api/v1/locks?sort=waiting&limit=100", "/api/v1/locks?search=eve", "/api/v1/trouble", "/commands/hash"}
	return each(3, func(i int) error {
		return rounds(ctx, func() error {
			const rest = " HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
			for _, page := range pages {
				if _, err := p.sees(p.attacked.MetricsAddr, i, "GET /metrics"+rest); err != nil {
					return err
				}
				if _, err := p.sees(p.attacked.HTTPAddr, i, "GET "+page+rest); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// httpGuesses tries passwords of the super user, who logs in from another address meanwhile.
func httpGuesses(ctx context.Context, p *Play) error {
	guessing, end := context.WithCancel(context.Background())
	guessed := make(chan error, 1)
	go func() {
		guessed <- each(10, func(i int) error {
			rng := p.rng(i)
			return rounds(guessing, func() error {
				_, err := p.sees(p.attacked.HTTPAddr, i, fmt.Sprintf("POST /leader HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"+
					"Authorization: digest super:%x\r\nContent-Length: 0\r\n\r\n", rng.Uint64()))
				return err
			})
		})
	}()
	err := p.askFence(ctx, func() {})
	began := time.Now()
	statuses, loginErr := p.exchange(p.attacked.HTTPAddr, p.host(20), "GET /commands/stat_reset HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"+superLogin+"\r\n")
	if took := time.Since(began); loginErr == nil && (!slices.Equal(statuses, []string{"200"}) || took > time.Second) {
		loginErr = &harm{fmt.Sprintf("the super user is answered %v after %d ms", statuses, took.Milliseconds()), nil}
	}
	end()
	return errors.Join(err, loginErr, <-guessed)
}

// restores takes a snapshot, as the super user, and restores data that are none.
func restores(ctx context.Context, p *Play) error {
	req, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodGet, "http://"+p.attacked.HTTPAddr+"/commands/snapshot", nil)
	if err != nil {
		return fmt.Errorf("attack: %w", err)
	}
	req.Header.Set("Authorization", "digest "+jepsen.AdminAuth)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("attack: snapshot: %w", err)
	}
	snapshot, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("attack: snapshot: %s: %w", resp.Status, err)
	}
	rng := p.rng(0)
	return rounds(ctx, func() error {
		for _, body := range malformed(rng, snapshot) {
			request := "POST /commands/restore HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/octet-stream\r\n" + superLogin
			if _, err := p.sees(p.attacked.HTTPAddr, 0, request+body); err != nil {
				return err
			}
		}
		return nil
	})
}

// malformed are the rest of the head of a restore, and its body: none is a snapshot.
func malformed(rng *rand.Rand, snapshot []byte) (bodies []string) {
	add := func(headers string, length int, body []byte) {
		bodies = append(bodies, fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", headers, length, body))
	}
	cut := snapshot[:rng.IntN(len(snapshot))]
	add("", len(cut), cut)
	longer := append(bytes.Clone(snapshot), make([]byte, 100)...)
	add("", len(longer), longer)
	for range 6 {
		flipped := bytes.Clone(snapshot)
		flipped[rng.IntN(len(flipped))] ^= 1 << rng.IntN(8)
		add("", len(flipped), flipped)
	}
	huge := bytes.Clone(snapshot)
	at := rng.IntN(len(huge) - 8)
	binary.BigEndian.PutUint64(huge[at:], ^binary.BigEndian.Uint64(huge[at:]))
	add("", len(huge), huge)
	random := noise(rng, 10_000)
	add("", len(random), random)
	var bomb bytes.Buffer
	w := gzip.NewWriter(&bomb)
	zeros := make([]byte, 1<<20)
	for range 64 {
		_, _ = w.Write(zeros)
	}
	_ = w.Close()
	add("Content-Encoding: gzip\r\n", bomb.Len(), bomb.Bytes())
	add("", 1<<40, append(bytes.Clone(snapshot[:len(snapshot)/2]), zeros...))
	return append(bodies, "Transfer-Encoding: chunked\r\n\r\n"+strings.Repeat("100000\r\n"+string(zeros)+"\r\n", 4)+"0\r\n\r\n")
}
