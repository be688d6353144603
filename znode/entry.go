package znode

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// Flags are settings that change the effect of commands. The leader settles them for all members by
// putting its own into every entry.
type Flags uint32

const (
	// EnforceQuota makes creates and setData fail with QuotaExceeded above a hard limit
	// (enforceQuota).
	EnforceQuota Flags = 1 << 0
	// ExtendedTypes allows TTL nodes (extendedTypesEnabled).
	ExtendedTypes Flags = 1 << 1
	// SkipACL switches every permission check off (skipACL). ACLs are checked all the same
	// before they are stored.
	SkipACL Flags = 1 << 2
	// NoDigest is that there is no scheme digest: no ACL with it may be stored
	// (DigestAuthenticationProvider.enabled=false).
	NoDigest Flags = 1 << 3
	// X509 allows ACLs that name the holder of a certificate (authProvider.N with
	// X509AuthenticationProvider).
	X509 Flags = 1 << 4
	// SASL allows ACLs that name a user of SASL, or a Kerberos principal (authProvider.N with
	// SASLAuthenticationProvider, or a file of users).
	SASL Flags = 1 << 5
	// Reconfig allows to change the members (reconfigEnabled).
	Reconfig Flags = 1 << 6
	// LoneVoter allows a cluster of one voter (standaloneEnabled=false).
	LoneVoter Flags = 1 << 7
	// KeyScheme allows ACLs with the scheme key (authProvider.N with
	// KeyAuthenticationProvider).
	KeyScheme Flags = 1 << 8

	// knownFlags are all of them. Other members know other flags: an entry with an unknown one
	// is not applied, because it may mean something else than it seems to
	// (docs/decisions/013-versions.md).
	knownFlags Flags = 1<<9 - 1
)

// Entry is the content of one position of the replicated log: a batch of commands.
type Entry struct {
	Stamp
	Commands []Command
}

// Stamp is the part of an entry that the leader adds to the commands.
type Stamp struct {
	// TimeMs is the leader's wall clock when it made the entry, in milliseconds since 1970.
	// Nodes show it as ctime and mtime. It may go back from one entry to the next.
	TimeMs int64
	// ClockMs is the cluster's clock, in milliseconds (see Store.ClockMs).
	ClockMs int64
	Flags   Flags
}

// entryVersion is the version of entries that AppendEntry writes and DecodeEntry reads
// (docs/decisions/013-versions.md).
const (
	entryVersion    = 1
	entryHeaderSize = 1 + 4 + 4 + 8 + 8 + 4
)

// AppendEntry encodes an entry of commands that are already encoded (by Command.Append) behind b
// and returns the extended slice. Integers are big-endian.
//
//	 0        1             5            9            17            25            29
//	+---------+-------------+------------+------------+-------------+-------------+----------------+
//	| u8      | u32         | u32        | i64        | i64         | u32         | count x        |
//	| version | CRC-32C of  | flags      | time in ms | clock in ms | count       | uvarint length |
//	|         | the version |            |            |             |             | command        |
//	|         | and of all  |            |            |             |             |                |
//	|         | that follows|            |            |             |             |                |
//	+---------+-------------+------------+------------+-------------+-------------+----------------+
func AppendEntry(b []byte, stamp Stamp, cmds [][]byte) []byte {
	start := len(b)
	b = append(b, entryVersion, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(stamp.Flags))
	b = binary.BigEndian.AppendUint64(b, uint64(stamp.TimeMs))
	b = binary.BigEndian.AppendUint64(b, uint64(stamp.ClockMs))
	b = binary.BigEndian.AppendUint32(b, uint32(len(cmds)))
	for _, cmd := range cmds {
		b = appendBytes(b, cmd)
	}
	binary.BigEndian.PutUint32(b[start+1:], entrySum(b[start:]))
	return b
}

// entrySum is the checksum of an encoded entry: of everything but the checksum itself.
func entrySum(b []byte) uint32 {
	sum := crc32.Update(0, castagnoli, b[:1])
	return crc32.Update(sum, castagnoli, b[5:])
}

// DecodeEntry reads an entry that takes up all of b. The commands alias b. It allocates at most in
// proportion to len(b). An error means that the log cannot be applied: it is damaged (ErrDamaged)
// or newer than this program (ErrNewer).
func DecodeEntry(b []byte) (*Entry, error) {
	e, err := decodeEntry(b, true)
	if err != nil {
		return nil, fmt.Errorf("znode: decode entry: %w", err)
	}
	return &e, nil
}

// CheckEntry says whether DecodeEntry can decode b, with its error. It keeps no command.
func CheckEntry(b []byte) error {
	if _, err := decodeEntry(b, false); err != nil {
		return fmt.Errorf("znode: check entry: %w", err)
	}
	return nil
}

// decodeEntry leaves the commands out if they are not to be kept.
func decodeEntry(b []byte, keep bool) (e Entry, err error) {
	if len(b) < entryHeaderSize {
		return e, fmt.Errorf("%w: %d bytes", ErrDamaged, len(b))
	}
	// The version comes first: a newer one may have its checksum elsewhere.
	if b[0] > entryVersion {
		return e, fmt.Errorf("%w: it has format %d, this program reads %d", ErrNewer, b[0], entryVersion)
	}
	if sum, want := entrySum(b), binary.BigEndian.Uint32(b[1:]); b[0] == 0 || sum != want {
		return e, fmt.Errorf("%w: version %d, checksum %08x, computed %08x", ErrDamaged, b[0], want, sum)
	}
	d := decoder{b: b[5:]}
	e.Flags, e.TimeMs, e.ClockMs = Flags(d.u32()), int64(d.u64()), int64(d.u64())
	if unknown := e.Flags &^ knownFlags; d.err == nil && unknown != 0 {
		return e, fmt.Errorf("%w: it has the flags %#x, which this program does not know", ErrNewer, uint32(unknown))
	}
	n := d.u32()
	if uint64(n) > uint64(len(d.b)/minCommandSize) {
		return e, fmt.Errorf("%w: %d commands in %d bytes", ErrDamaged, n, len(d.b))
	}
	room := bodies{left: 1}
	if keep {
		e.Commands = make([]Command, 0, n)
	}
	var one decoder // of one command
	for i := range n {
		if one.b = d.bytes(); keep {
			room.left = n - i
		}
		c, err := one.command(room.get)
		switch {
		case err != nil:
			return e, fmt.Errorf("command %d of %d: %w", i, n, err)
		case len(one.b) != 0:
			return e, fmt.Errorf("%w: command %d of %d: %d bytes too many", ErrDamaged, i, n, len(one.b))
		case keep:
			e.Commands = append(e.Commands, c)
		}
	}
	if len(d.b) != 0 {
		return e, fmt.Errorf("%w: %d bytes too many", ErrDamaged, len(d.b))
	}
	return e, nil
}

// bodies are the bodies of the commands of an entry. Most of a busy cluster are requests, and of a
// cluster with clients that arrive, new sessions: those have one allocation for all that are left.
type bodies struct {
	left     uint32 // commands, with the present one; 1: the next command may have the same body
	requests []Request
	sessions []CreateSession
}

func (b *bodies) get(k Kind) Body {
	switch k {
	case KindRequest:
		return next(&b.requests, b.left)
	case KindCreateSession:
		return next(&b.sessions, b.left)
	}
	return newBodyOf(k)
}

// next takes the first element of free, which gets room for n if it is empty. The last one stays.
func next[T any](free *[]T, n uint32) *T {
	if len(*free) == 0 {
		*free = make([]T, n)
	}
	first := &(*free)[0]
	if n > 1 {
		*free = (*free)[1:]
	}
	return first
}

// minCommandSize is the size in bytes of the shortest command, its length byte included.
const minCommandSize = 1 + 1 + 8 + 1 + 1
