package quorum

import "testing"

func TestMaj(t *testing.T) {
	for _, tc := range []struct {
		voters, size, tolerates int
		warns                   bool
	}{
		{1, 1, 0, false}, {2, 2, 0, true}, {3, 2, 1, false}, {4, 3, 1, true}, {5, 3, 2, false}, {6, 4, 2, true}, {7, 4, 3, false},
	} {
		m := NewMaj(tc.voters)
		if m.Size() != tc.size || m.Tolerates() != tc.tolerates || (m.EvenWarning() != "") != tc.warns {
			t.Errorf("%d voters: size %d, tolerates %d, warning %q", tc.voters, m.Size(), m.Tolerates(), m.EvenWarning())
		}
		for n := range tc.voters + 1 {
			if m.Quorum(n) != (n > tc.voters/2) || m.Quorum(n) && m.Quorum(tc.voters-n) {
				t.Errorf("%d of %d voters: quorum %v, the others %v", n, tc.voters, m.Quorum(n), m.Quorum(tc.voters-n))
			}
		}
	}
}
