package server

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"lockkeeper/server/zoocfg"
	"lockkeeper/session/sasl"
	"lockkeeper/wire"
)

// lockedBuffer is a buffer that several goroutines write to.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// TestSecretsAreShownNowhere: no four-letter word, no answer to HTTP and no line of the log, at any
// level, has a password or an equivalent of one.
func TestSecretsAreShownNowhere(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	const adminSecret, jaasSecret, userSecret, superSecret = "sesame-of-admin", "sesame-of-bob", "sesame-of-ann", "sesame-of-super"
	super, err := zoocfg.Digest("", "admin", adminSecret)
	if err != nil {
		t.Fatal(err)
	}
	entry, err := sasl.Entry("ann", userSecret)
	if err != nil {
		t.Fatal(err)
	}
	jaas := write("jaas", "Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_bob=\""+jaasSecret+"\"; };")
	file := write("zoo.cfg", fmt.Sprintf("dataDir=%s\nclientPort=1\n4lw.commands.whitelist=*\naudit.enable=true\n"+
		"DigestAuthenticationProvider.superDigest=%s\njava.security.auth.login.config=%s\nsaslUsersFile=%s\n"+
		"SASLAuthenticationProvider.superPassword=%s\nsuperUser=bob\n",
		filepath.Join(dir, "data"), super, jaas, write("users", entry), superSecret))
	cfg, err := LoadConfig(file)
	if err != nil {
		t.Fatal(err)
	}
	var shown lockedBuffer
	s := startReal(t, func(c *Config) {
		*c = cfg
		c.Client.Addr, c.HTTP.Addr = "127.0.0.1:0", "127.0.0.1:0"
		c.Logger = slog.New(slog.NewTextHandler(&shown, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	c := dialReal(t, s)
	c.connect(patience)
	c.call(wire.OpAuth, wire.AuthPacket{Scheme: "digest", Auth: []byte("admin:" + adminSecret)})
	c.call(wire.OpCreate, create("/a", nil, wire.ModePersistent))
	c.call(wire.OpSASL, wire.SASLRequest{Token: []byte{}})
	c.put(c.request(wire.OpSASL, wire.SASLRequest{Token: []byte("username=\"bob\",password=" + jaasSecret)})...)
	if h, _ := c.reply(); h.Err != wire.CodeAuthFailed {
		t.Errorf("a login with rubbish: %v", h.Err)
	}
	_ = c.Close()
	password := hex.EncodeToString(c.id.Password) // of the session
	for _, word := range zoocfg.FourLetterWords() {
		if word == "stmk" {
			continue // takes a number, and shows it
		}
		c := dialReal(t, s)
		answer := c.word(word)
		_ = c.Close() // or those that list something would wait for it
		if word == "conf" && !strings.Contains(answer, "clientPort=") {
			t.Errorf("conf: %q", answer)
		}
		fmt.Fprintf(&shown, "%s: %s\n", word, answer)
	}
	for _, path := range []string{"/", "/members", "/fence?lock=/a&token=1"} {
		req, err := http.NewRequest(http.MethodGet, "http://"+s.HTTPAddr().String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "digest admin:"+adminSecret)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
		fmt.Fprintf(&shown, "%s: %v %s %v\n", path, resp.Header, body, err)
	}
	_, digest, _ := strings.Cut(super, ":")
	text := shown.String()
	for _, secret := range []string{"sesame", digest, entry[len(entry)-32:], password, string(c.id.Password)} {
		if at := strings.Index(text, secret); at >= 0 {
			t.Errorf("%q is shown: %s", secret, text[max(0, at-100):min(len(text), at+100)])
		}
	}
	if !strings.Contains(text, "authentication refused") || !strings.Contains(text, "zk_logins_refused\t1\n") {
		t.Error("the login that was refused is neither logged nor counted")
	}
}
