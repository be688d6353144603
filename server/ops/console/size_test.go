package console

import (
	"reflect"
	"strings"
	"testing"

	"lockkeeper/server/ops/door"
)

// TestAnswersAreNotUnderestimated: an answer is no longer than the bound that memory is held for.
func TestAnswersAreNotUnderestimated(t *testing.T) {
	for _, text := range []string{"", "a", strings.Repeat("n", 1000), strings.Repeat("\x01\"\\", 1000),
		strings.Repeat("\u2028", 1000), strings.Repeat("\xff", 1000), strings.Repeat("ä", 1000)} {
		for _, answer := range []any{
			locksAnswer{Kinds: map[string]int{text: 1 << 40}, Locks: []lockRow{{Path: text, Trouble: []string{text, text}}}},
			nodeAnswer{Path: text, Data: newBlob([]byte(text), 1<<20), ACL: []aclRow{{"cdrwa", text, text}}},
			childrenAnswer{Path: text, Children: []childRow{{text, 1 << 30, 1 << 30, true}}},
		} {
			if n, most := len(door.Encode(answer)), jsonBytes(reflect.ValueOf(answer)); n > most {
				t.Errorf("%T of %.9q: %d bytes, held for %d", answer, text, n, most)
			}
		}
	}
}
