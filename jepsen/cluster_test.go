package jepsen

import (
	"strings"
	"testing"
)

func TestCompareDigests(t *testing.T) {
	for _, test := range []struct {
		name         string
		members      []string
		zxid, differ string
	}{
		{"one zxid", []string{"10: 7\n", "10: 7\n", "10: 7\n"}, "10", ""},
		{"one is behind", []string{"10: 7\n", "f: 6\n", "10: 7\n"}, "", ""},
		{"one does not answer", []string{"10: 7\n", "", "10: 7\n"}, "", ""},
		{"several zxids", []string{"80: 1\n100: 2\n", "80: 1\n100: 2\n180: 3\n", "100: 2\n"}, "100", ""},
		{"two states", []string{"10: 7\n", "10: 8\n", "f: 6\n"}, "", "member 2"},
		{"two states long ago", []string{"80: 1\n100: 2\n", "80: 9\n100: 2\n"}, "", "0x80"},
	} {
		var all []digests
		for _, text := range test.members {
			all = append(all, parseDigests(text))
		}
		zxid, differ := compareDigests(all)
		if zxid != test.zxid || (differ != "") != (test.differ != "") || !strings.Contains(differ, test.differ) {
			t.Errorf("%s: %q, %q; want %q, %q", test.name, zxid, differ, test.zxid, test.differ)
		}
	}
}
