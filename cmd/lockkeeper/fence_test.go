package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestFence: the proxy refuses an older token, also after a restart; it lets a request in flight
// end when it is stopped; and a damaged state is named, and stops the start.
func TestFence(t *testing.T) {
	began, release := make(chan struct{}, 1), make(chan struct{})
	resource := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			began <- struct{}{}
			<-release
		}
		fmt.Fprint(w, "done")
	}))
	defer resource.Close()
	dir := t.TempDir()
	args := []string{"fence", "-listen", "127.0.0.1:0", "-to", resource.URL, "-lock", "/locks/a", "-state", filepath.Join(dir, "state"), "-settle", "0s"}
	proxy := func() (*process, string) {
		p := start(t, dir, args...)
		line := p.line()
		addr, ok := strings.CutPrefix(line, "lockkeeper fence listens on ")
		if !ok {
			t.Fatalf("it says %q", line)
		}
		return p, "http://" + addr
	}
	send := func(url, token string) (status int, body string) {
		r, err := http.NewRequest(http.MethodPost, url, strings.NewReader("x"))
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		r.Header.Set("Fencing-Token", token)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Error(err)
		}
		return resp.StatusCode, string(text)
	}
	const refused = `{"error":"fence: token 33 for \"/locks/a\" is stale: 34 has been seen","token":33,"newest":34}` + "\n"
	p, url := proxy()
	for _, step := range []struct {
		token  string
		status int
	}{{"33", http.StatusOK}, {"34", http.StatusOK}} {
		if status, body := send(url, step.token); status != step.status || body != "done" {
			t.Errorf("token %s: status %d, %s", step.token, status, body)
		}
	}
	if status, body := send(url, "33"); status != http.StatusConflict || body != refused {
		t.Errorf("token 33: status %d, %s", status, body)
	}
	answer := make(chan string)
	go func() { _, body := send(url+"/slow", "34"); answer <- body }()
	<-began
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	await(t, "the end of the port", func() bool { status, _ := send(url, "34"); return status == 0 })
	close(release)
	if body := <-answer; body != "done" {
		t.Errorf("a request in flight: %s", body)
	}
	if status, _ := p.wait(); status != exitOK {
		t.Errorf("status %d", status)
	}

	p, url = proxy()
	if status, body := send(url, "33"); status != http.StatusConflict || body != refused {
		t.Errorf("token 33 after a restart: status %d, %s", status, body)
	}
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.wait()
	if err := os.WriteFile(args[8], []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, _, stderr := invoke(args...); status != exitFailed || !strings.Contains(stderr, args[8]) {
		t.Errorf("damaged: status %d, %s", status, stderr)
	}
}
