package main

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"lockkeeper/server"
	"lockkeeper/server/zoocfg"
)

// A signal ends a start that waits for the data directory at once, and the command says so.
func TestSignalEndsAStartThatWaits(t *testing.T) {
	t.Parallel()
	cfg := server.Config{
		Client: zoocfg.Client{Addr: "127.0.0.1:0"},
		Data:   zoocfg.Data{Dir: t.TempDir()},
		Logger: slog.New(slog.DiscardHandler),
	}
	holder, err := server.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	var stdout bytes.Buffer
	log, stderr := io.Pipe()
	signals := make(chan os.Signal, 1)
	status := make(chan int, 1)
	go func() {
		status <- run([]string{"serve", "-client-address", "127.0.0.1:0", "-data-dir", cfg.Data.Dir}, env{&stdout, stderr, signals, nil, ""})
		stderr.Close()
	}()
	var text strings.Builder
	var signalled time.Time
	for buf := make([]byte, 4096); ; {
		n, err := log.Read(buf)
		if text.Write(buf[:n]); signalled.IsZero() && strings.Contains(text.String(), "waiting for it to end") {
			signalled = time.Now()
			signals <- syscall.SIGTERM
		}
		if err != nil {
			break
		}
	}
	if got := <-status; got != exitOK {
		t.Errorf("status %d", got)
	}
	if took := time.Since(signalled); took > time.Second {
		t.Errorf("it took %v to end", took)
	}
	want := "lockkeeper: not started: stopped by a signal (terminated) before clients could connect\n"
	if !strings.HasSuffix(text.String(), want) || stdout.Len() > 0 {
		t.Errorf("stdout %q, stderr %q", stdout.String(), text.String())
	}
}

func TestTestClock(t *testing.T) {
	file := filepath.Join(t.TempDir(), "clock")
	clock := testClock(file)
	for _, test := range []struct {
		text  string // empty: there is no file
		wrong time.Duration
	}{
		{"", 0}, {"-24h\n", -24 * time.Hour}, {"90s", 90 * time.Second}, {"nonsense", 0},
	} {
		if test.text != "" {
			if err := os.WriteFile(file, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		before := time.Now().Round(0)
		now := clock()
		if after := time.Now().Round(0); now.Before(before.Add(test.wrong)) || now.After(after.Add(test.wrong)) {
			t.Errorf("%q: it is %v, want %v later than %v", test.text, now, test.wrong, before)
		}
	}
}

// A suspend stops one of a member's clocks, and shows in the other.
func TestTestSuspends(t *testing.T) {
	file := filepath.Join(t.TempDir(), "suspends")
	c := testSuspends(file)
	began, awake := c.Now(), c.Awake()
	const asleep = time.Hour
	if err := os.WriteFile(file, []byte(asleep.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if passed := c.Now().Sub(began); passed < 0 || passed > asleep/2 {
		t.Errorf("%v have passed", passed)
	}
	if passed := c.Awake().Sub(awake); passed > asleep/2-asleep {
		t.Errorf("the clock that stands still went on by %v", passed)
	}
	if c.Woke().IsZero() {
		t.Error("the suspend was not seen")
	}
}

func TestMemberNumber(t *testing.T) {
	for _, tt := range []struct {
		text, host string
		want       string // or the error
	}{
		{"2", "", "2"},
		{"255", "", "255"},
		{"256", "", `"256" is no member number, 0 to 255`},
		{"x", "", `"x" is no member number, 0 to 255`},
		{"hostname", "lockkeeper-0", "1"},
		{"hostname", "a-b-12.svc.cluster.local", "13"},
		{"hostname", "a-255", `"255" is no member number, 0 to 255`},
		{"hostname", "a-b", `"b" is no member number, 0 to 255`},
		{"hostname", "12", `the name of this host, "12", does not end in a number behind a dash`},
	} {
		var n memberNumber
		err := n.set(tt.text, tt.host)
		got := n.String()
		if err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s on %s: %s, want %s", tt.text, tt.host, got, tt.want)
		}
	}
}
