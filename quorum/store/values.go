package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// Value is the key of a number in the stable store. A number that was never written is 0.
type Value string

// The numbers in a stable store. The store compares the term and the vote (stable.go); the others
// are the caller's.
const (
	Term        Value = "CurrentTerm"            // raft's
	VoteTerm    Value = "LastVoteTerm"           // raft's
	Cluster     Value = "lockkeeper/cluster"     // the cluster that the stores belong to
	Standing    Value = "lockkeeper/standing"    // alone, or one of a cluster
	Import      Value = "lockkeeper/import"      // the progress of an import
	ImportIndex Value = "lockkeeper/importIndex" // the index of the imported state
)

// VoteCandidate is the key of the candidate of the newest vote, raft's.
const VoteCandidate = "LastVoteCand"

// Identity names the member and the disk that the stores belong to. It is written first, and synced
// at once.
type Identity struct {
	Owner uint64 // the number of the member
	Disk  uint64 // the id of the data directory; never 0
}

var (
	// keyIdentity has the Identity: two big-endian numbers of 8 bytes.
	keyIdentity = []byte("lockkeeper/identity")
	// keyOutdated has the reason why the files must not be used any more.
	keyOutdated = []byte("lockkeeper/outdated")
)

// ErrOutdated says that the files of a member must not be used any more, although they are whole.
// The message says why.
var ErrOutdated = errors.New("outdated")

// isAbsent reports whether err says that a stable store does not have a key. The stores share no
// error; raft, too, compares with the text (UPSTREAM.md, 13).
func isAbsent(err error) bool { return err.Error() == "not found" }

// Number reads a number. Errors name the file.
func (s *Stores) Number(key Value) (uint64, error) {
	v, err := storedNumber(s.Stable, []byte(key))
	if err != nil {
		return 0, fmt.Errorf("quorum: read value %q of %s: %w", string(key), s.StableName, err)
	}
	return v, nil
}

// SetNumber writes a number. Errors name the file.
func (s *Stores) SetNumber(key Value, v uint64) error {
	if err := s.Stable.SetUint64([]byte(key), v); err != nil {
		return fmt.Errorf("quorum: write value %q of %s: %w", string(key), s.StableName, err)
	}
	return nil
}

// storedNumber is a number in a stable store; 0 if it is not there.
func storedNumber(s raft.StableStore, key []byte) (uint64, error) {
	v, err := s.GetUint64(key)
	if err != nil && isAbsent(err) {
		return 0, nil
	}
	return v, err
}

// value is a value in the stable store; empty if it is not there. Errors name the file.
func (s *Stores) value(key []byte) ([]byte, error) {
	v, err := s.Stable.Get(key)
	if err != nil && !isAbsent(err) {
		return nil, fmt.Errorf("quorum: read value %q of %s: %w", key, s.StableName, err)
	}
	return v, nil
}

// Identity reads the identity; the Disk is 0 if there is none yet. Errors name the file.
func (s *Stores) Identity() (id Identity, err error) {
	v, err := s.value(keyIdentity)
	switch {
	case err != nil || len(v) == 0:
		return id, err
	case len(v) != 16:
		return id, fmt.Errorf("quorum: identity of %s: %w: %d bytes", s.StableName, ErrDamaged, len(v))
	}
	return Identity{binary.BigEndian.Uint64(v), binary.BigEndian.Uint64(v[8:])}, nil
}

// SetIdentity writes the identity. Errors name the file.
func (s *Stores) SetIdentity(id Identity) error {
	v := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, id.Owner), id.Disk)
	if err := s.Stable.Set(keyIdentity, v); err != nil {
		return fmt.Errorf("quorum: write identity of %s: %w", s.StableName, err)
	}
	return nil
}

// Retire makes every later CheckRetired fail, and returns its error.
func (s *Stores) Retire(reason string) error {
	if err := s.Stable.Set(keyOutdated, []byte(reason)); err != nil {
		return fmt.Errorf("quorum: write to %s: %w", s.StableName, err)
	}
	return s.CheckRetired()
}

// Retired returns the reason why the files must not be used any more; empty: they may.
func (s *Stores) Retired() (reason string, err error) {
	v, err := s.value(keyOutdated)
	return string(v), err
}

// CheckRetired returns ErrOutdated, with the reason, for stores that were retired.
func (s *Stores) CheckRetired() error {
	reason, err := s.Retired()
	if err == nil && reason != "" {
		err = fmt.Errorf("quorum: %s: %w: %s", s.StableName, ErrOutdated, reason)
	}
	return err
}

// Peek verifies the raft.db of a log directory and calls read with its values, which must not be
// written. It changes nothing. The log and the snapshots stay closed. Errors name the file:
// ErrInUse, while a member runs on it, ErrDamaged, ErrFormat.
func Peek(logDir string, read func(s *Stores, kind LogKind) error) error {
	path := filepath.Join(logDir, logFileName)
	if err := verifyBoltFile(path); err != nil {
		return fmt.Errorf("quorum: %s: %w", path, err)
	}
	db, err := raftboltdb.New(boltOptions(path, true))
	if err != nil {
		return fmt.Errorf("quorum: %s: %w", path, err)
	}
	defer db.Close()
	s := &Stores{Stable: &boltFile{db: db, path: path}, StableName: path}
	manifest, err := s.value(segmentsKey)
	if err != nil {
		return err
	}
	kind := LogBolt
	if len(manifest) > 0 {
		kind = LogWAL
	}
	return read(s, kind)
}
