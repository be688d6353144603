package httplock

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"lockkeeper/locknode"
	"lockkeeper/wire"
)

func TestDecodeAsk(t *testing.T) {
	secretText := strings.Repeat("0123456789abcdef", 3)
	for _, tt := range []struct {
		method, path, query, secret string
		want                        ask
		fault                       string // in the error
	}{
		{"PUT", "a/b", "", "", ask{path: "/a/b", mode: modeMutex, timeout: 10 * time.Second, yields: 10, stream: true}, ""},
		{"PUT", "a", "wait=30s&timeout=4s&mode=read&hold=renew&name=b%20c&note=d", "",
			ask{path: "/a", mode: modeRead, wait: 30 * time.Second, timeout: 4 * time.Second, name: "b c", note: "d", yields: 10}, ""},
		{"PUT", "a", "priority=-5&yields=0&explain=true", "",
			ask{path: "/a", mode: modeMutex, timeout: 10 * time.Second, stream: true, priority: -5, explain: true}, ""},
		{"PUT", "a", "mode=semaphore&leases=3", "", ask{path: "/a", mode: modeSemaphore, leases: 3, timeout: 10 * time.Second, yields: 10, stream: true}, ""},
		{"PUT", "", "", "", ask{}, "path of a lock"},
		{"PUT", "a//b", "", "", ask{}, "path of a lock"},
		{"PUT", "a/../b", "", "", ask{}, "path of a lock"},
		{"PUT", "a/", "", "", ask{}, "path of a lock"},
		{"PUT", "a\x00b", "", "", ask{}, "path of a lock"},
		{"PUT", strings.Repeat("a", 1025), "", "", ask{}, "path of a lock"},
		{"PUT", "zookeeper/quota", "", "", ask{}, "below /zookeeper"},
		{"PUT", "a", "wait=-1s", "", ask{}, "wait must be"},
		{"PUT", "a", "wait=2h", "", ask{}, "wait must be"},
		{"PUT", "a", "wait=30", "", ask{}, "wait must be"},
		{"PUT", "a", "timeout=0s", "", ask{}, "timeout must be"},
		{"PUT", "a", "timout=3s", "", ask{}, `no parameter "timout"`},
		{"PUT", "a", "wait=1s&wait=2s", "", ask{}, "twice"},
		{"PUT", "a", "%zz", "", ask{}, "cannot be decoded"},
		{"PUT", "a", "mode=rw", "", ask{}, "mode must be"},
		{"PUT", "a", "mode=semaphore", "", ask{}, "belong together"},
		{"PUT", "a", "leases=2", "", ask{}, "belong together"},
		{"PUT", "a", "mode=semaphore&leases=0", "", ask{}, "leases must be"},
		{"PUT", "a", "hold=forever", "", ask{}, "hold must be"},
		{"PUT", "a", "name=" + strings.Repeat("n", 81), "", ask{}, "name must be"},
		{"PUT", "a", "name=a%0Ab", "", ask{}, "name must be"},
		{"PUT", "a", "priority=100", "", ask{}, "priority must be"},
		{"PUT", "a", "priority=high", "", ask{}, "priority must be"},
		{"PUT", "a", "yields=-1", "", ask{}, "yields must be"},
		{"PUT", "a", "yields=1001", "", ask{}, "yields must be"},
		{"PUT", "a", "explain=yes", "", ask{}, "explain must be"},
		{"POST", "a", "priority=1", secretText, ask{}, "no parameter"},
		{"PUT", "a", "note=%ff", "", ask{}, "note must be"},
		{"POST", "a", "", "", ask{}, "Lock-Secret"},
		{"POST", "a", "", secretText[1:], ask{}, "Lock-Secret"},
		{"POST", "a", "", "x" + secretText[1:], ask{}, "Lock-Secret"},
		{"DELETE", "a", "wait=1s", secretText, ask{}, "no parameter"},
		{"DELETE", "a", "", secretText, ask{path: "/a", mode: modeMutex, timeout: 10 * time.Second, yields: 10, stream: true,
			secret: secret{0x0123456789abcdef, [wire.PasswordLen]byte([]byte("\x01\x23\x45\x67\x89\xab\xcd\xef\x01\x23\x45\x67\x89\xab\xcd\xef"))}}, ""},
	} {
		a, err := decodeAsk(tt.method, tt.path, tt.query, http.Header{SecretHeader: {tt.secret}})
		if tt.fault != "" {
			if err == nil || !strings.Contains(err.Error(), tt.fault) {
				t.Errorf("%s %q?%s: %+v, %v", tt.method, tt.path, tt.query, a, err)
			}
			continue
		}
		if err != nil || *a != tt.want {
			t.Errorf("%s %q?%s: %+v, %v", tt.method, tt.path, tt.query, a, err)
		} else if tt.secret != "" && a.secret.String() != tt.secret {
			t.Errorf("the secret %s is written %s", tt.secret, a.secret)
		}
	}
}

// FuzzDecodeAsk: whatever is sent, a decoded request is within its bounds, and a secret is written
// as it was read.
func FuzzDecodeAsk(f *testing.F) {
	methods := []string{http.MethodPut, http.MethodPost, http.MethodDelete}
	f.Add(byte(0), "a/b", "wait=30s&mode=semaphore&leases=3&name=n", "")
	f.Add(byte(1), "a", "", strings.Repeat("0a", secretBytes))
	f.Add(byte(2), "a/../b", "x=%zz", "zz")
	f.Fuzz(func(t *testing.T, which byte, path, query, secret string) {
		method := methods[int(which)%len(methods)]
		a, err := decodeAsk(method, path, query, http.Header{SecretHeader: {secret}})
		if err != nil {
			if len(err.Error()) > 500 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		if len(a.path) > pathMost+1 || a.wait < 0 || a.wait > waitMost || a.timeout <= 0 || a.timeout > timeoutMost ||
			len(a.name) > nameMost || len(a.note) > noteMost || a.leases < 0 || a.leases > leasesMost ||
			max(a.priority, -a.priority) > locknode.MaxPriority || a.yields < 0 || a.yields > yieldsMost || layouts[a.mode] == "" {
			t.Errorf("%+v", a)
		}
		if method != http.MethodPut && !strings.EqualFold(a.secret.String(), secret) {
			t.Errorf("the secret %q is written %s", secret, a.secret)
		}
	})
}
