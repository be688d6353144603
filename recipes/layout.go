package recipes

import "strings"

// layouts are the names, in front of the sequence number, of the nodes of the locks
// that are known. Who makes nodes of one layout and who waits for which is in
// docs/guarantees.md.
var layouts = []struct {
	name string
	kind Kind
}{
	{readName, KindRead}, {kazooReadName, KindRead},
	{writeName, KindWrite}, {kazooLockName, KindWrite}, {lockName, KindWrite},
	{leaseName, KindLease},
}

// layoutOf returns the layout of a node, or "".
func layoutOf(name string) string {
	if isKazooLease(name) {
		return layoutKazooLease
	}
	if _, ok := sequence(name); !ok {
		return ""
	}
	base := name[:len(name)-sequenceDigits]
	for _, l := range layouts {
		if strings.HasSuffix(base, l.name) {
			return l.name
		}
	}
	if isSessionName(base) {
		return layoutSession
	}
	return ""
}

const (
	layoutKazooLease = "kazoo lease"
	// layoutSession is that of ZooKeeper's own recipes in Java and C:
	// x-<session>-<sequence number>.
	layoutSession = "x-"
)

// isSessionName: the Java recipe writes its session in decimal, that in C in hex.
func isSessionName(base string) bool {
	id, ok := strings.CutPrefix(base, layoutSession)
	id, dash := strings.CutSuffix(id, "-")
	for i := range len(id) {
		ok = ok && isHex(id[i])
	}
	return ok && dash && id != ""
}
