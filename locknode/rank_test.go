package locknode

import "testing"

const testUUID = "_c_550e8400-e29b-41d4-a716-446655440000-"

func TestRankIsInTheName(t *testing.T) {
	for name, want := range map[string]Rank{
		testUUID + "lock-0000000012":                          {0, 12},
		testUUID + "p+05-lock-0000000012":                     {5, 12},
		testUUID + "p-10-__WRIT__0000000012":                  {-10, 12},
		testUUID + "p+99n0000000007-__READ__0000000012":       {99, 7},
		testUUID + "p+00n0000000007-lock-0000000012":          {0, 7},
		"_c_550e8400e29b41d4a716446655440000-lock-0000000012": {0, 12}, // go-zookeeper
		"550e8400e29b41d4a716446655440000__lock__0000000012":  {0, 12}, // kazoo
		"p+05-lock-0000000012":                                {0, 12},
		// Not as this package writes them:
		testUUID + "p+5-lock-0000000012":             {0, 12},
		testUUID + "p005-lock-0000000012":            {0, 12},
		testUUID + "p+05n7-lock-0000000012":          {0, 12},
		testUUID + "p+05x-lock-0000000012":           {0, 12},
		testUUID + "p+0a-lock-0000000012":            {0, 12},
		testUUID + "p+05n000000000a-lock-0000000012": {0, 12},
		testUUID + "p+05-other-0000000012":           {0, 12},
	} {
		got, ok := RankOf(name)
		if !ok || got != want {
			t.Errorf("RankOf(%s) = %v, %v, want %v", name, got, ok, want)
		}
		if layout := Layout(name); got != (Rank{0, 12}) {
			mark := got.First()
			if got.Number != 12 {
				mark = got.Yielded()
			}
			if made := testUUID + mark + layout + "0000000012"; made != name {
				t.Errorf("rank of %s is written as %s", name, made)
			}
		}
	}
	for _, name := range []string{"550e8400e29b41d4a716446655440000", "leases", testUUID, testUUID + "lock-"} {
		if got, ok := RankOf(name); ok {
			t.Errorf("RankOf(%s) = %v: it has no number", name, got)
		}
	}
}

// TestRankedNamesAreOneLayout: a rank in the name changes nothing for those that know of none.
func TestRankedNamesAreOneLayout(t *testing.T) {
	for _, layout := range []string{LayoutLock, LayoutRead, LayoutWrite, LayoutLatch} {
		plain := testUUID + layout + "0000000012"
		for _, mark := range []string{Rank{Priority: 3}.First(), Rank{-3, 4}.Yielded()} {
			name := testUUID + mark + layout + "0000000012"
			n, ok := Sequence(name)
			if !ok || n != 12 || Layout(name) != layout || KindOf(name) != KindOf(plain) || !Contends(name) {
				t.Errorf("%s is number %d of %q", name, n, Layout(name))
			}
		}
	}
}

func TestYieldsTo(t *testing.T) {
	node := func(mark, layout, number string) string { return testUUID + mark + layout + "00000000" + number }
	const (
		lock  = LayoutLock
		read  = LayoutRead
		write = LayoutWrite
	)
	for _, c := range []struct {
		name, own string
		others    []string
		want      int // index of others; -1: to none
	}{
		{"alone", node("", lock, "05"), nil, -1},
		{"others like it", node("", lock, "05"), []string{node("", lock, "06"), node("", write, "07")}, -1},
		{"a more urgent one", node("", lock, "05"), []string{node("", lock, "06"), node("p+01-", lock, "07")}, 1},
		{"a less urgent one", node("p+02-", lock, "05"), []string{node("p+01-", lock, "07")}, -1},
		{"the most urgent", node("", lock, "05"), []string{node("p+01-", lock, "06"), node("p+09-", lock, "08"), node("p+02-", lock, "09")}, 1},
		{"the first of the most urgent", node("", lock, "05"), []string{node("p+09-", lock, "08"), node("p+09-", lock, "06")}, 1},
		{"in front of it", node("", lock, "05"), []string{node("p+09-", lock, "04")}, -1},
		{"one that came before and has yielded", node("", lock, "05"), []string{node("p+00n0000000003-", lock, "07")}, 0},
		{"one that came later and has yielded", node("p+00n0000000003-", lock, "07"), []string{node("p+00n0000000005-", lock, "08")}, -1},
		{"another library, ordinary", node("", lock, "05"), []string{"550e8400e29b41d4a716446655440000__lock__0000000012"}, -1},
		{"another library, in the background", node("p-01-", lock, "05"), []string{"550e8400e29b41d4a716446655440000__lock__0000000012"}, 0},
		{"readers share", node("", read, "05"), []string{node("p+09-", read, "06")}, -1},
		{"reader and writer do not", node("", read, "05"), []string{node("p+09-", read, "06"), node("p+01-", write, "07")}, 1},
		{"no number", "leases", []string{node("p+09-", lock, "06")}, -1},
		{"others without a number", node("p-09-", lock, "05"), []string{"leases", "550e8400e29b41d4a716446655440000"}, -1},
	} {
		want := ""
		if c.want >= 0 {
			want = c.others[c.want]
		}
		if got := YieldsTo(append(c.others, c.own), c.own); got != want {
			t.Errorf("%s: yields to %q, want %q", c.name, got, want)
		}
	}
}
