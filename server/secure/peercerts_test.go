package secure

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestExpiryIsLogged: once a day in the last 30 days of a certificate, and after them.
func TestExpiryIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		log := slog.New(slog.NewTextHandler(&text, nil))
		expires := time.Now().Add(40 * 24 * time.Hour)
		end := Expiry{Whom: "clients"}
		for range 42 * 24 {
			end.Look(log, expires)
			time.Sleep(time.Hour)
		}
		soon, past := strings.Count(text.String(), "expires soon"), strings.Count(text.String(), "HAS EXPIRED")
		if soon != 30 || past != 2 {
			t.Errorf("%d lines before the end and %d after it:\n%s", soon, past, text.String())
		}
	})
}
