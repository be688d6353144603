package peer

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// NewestVersion is the newest version of the protocol between members that this program speaks.
// Members speak the one before too (docs/decisions/013-versions.md); version 1 is the first.
const NewestVersion = 1

// ErrVersion says that two members have no version of the protocol in common.
var ErrVersion = errors.New("peer: no common version of the protocol between members")

// errUnanswered says that a member has closed the connection instead of answering the preface.
var errUnanswered = errors.New("peer: the preface was not answered")

// commonVersion is the version that two members speak with the newest versions a and b; 0 if there
// is none.
func commonVersion(a, b uint8) uint8 {
	if max(a, b)-min(a, b) > 1 {
		return 0
	}
	return min(a, b)
}

// versions are those that the other members speak.
type versions struct {
	refused atomic.Int64 // streams that did not come about because there is no common version

	mu    sync.Mutex
	heard map[MemberID]uint8 // the newest of each member, as of the last stream to or from it
}

func (v *versions) hear(id MemberID, newest uint8) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.heard[id] = newest
}

func (v *versions) of(id MemberID) uint8 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.heard[id]
}

// VersionOf is the newest version that another member speaks, as of the last stream to or from it;
// 0 if it has not been heard of. It is apart if it has no version in common with this member.
func (p *Port) VersionOf(id MemberID) (newest uint8, apart bool) {
	newest = p.versions.of(id)
	return newest, newest != 0 && commonVersion(newest, p.cfg.Version) == 0
}

// CommonVersion is the newest version that all members of the cluster speak; 0 if there is none, or
// one of them has not been heard of. Only a leader has heard of all.
func (p *Port) CommonVersion() uint8 {
	least, most := p.cfg.Version, p.cfg.Version
	for _, s := range p.local.Servers() {
		if s.Member != p.cfg.ID {
			v := p.versions.of(s.Member)
			least, most = min(least, v), max(most, v)
		}
	}
	return commonVersion(least, most)
}

// checkVersion compares the newest version of another member with this one's. Errors: ErrVersion,
// with what to do.
func (p *Port) checkVersion(id MemberID, newest uint8) error {
	own := p.cfg.Version
	if commonVersion(own, newest) != 0 {
		return nil
	}
	p.versions.refused.Add(1)
	return fmt.Errorf("%w: member %d speaks %s, and this member %s: upgrade, or go back, one version after the other",
		ErrVersion, id, spoken(newest), spoken(own))
}

// spoken names the versions that a member speaks.
func spoken(newest uint8) string {
	if newest <= 1 {
		return fmt.Sprintf("version %d", newest)
	}
	return fmt.Sprintf("versions %d and %d", newest-1, newest)
}
