package peer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Every connection to a peer port starts with a preface that names its kind and its two ends:
//
//	 0       4         5      6      7    8           16        24        32
//	+-------+---------+------+------+----+-----------+---------+---------+
//	| magic | version | kind | from | to | from disk | to disk | cluster |
//	+-------+---------+------+------+----+-----------+---------+---------+
//
// Version is the newest that the sender speaks. The receiver answers with one byte, the newest that
// it speaks.
//
// From disk is the DiskID of the sender, to disk the one that it wants to reach: of the server that
// raft counts, on a raft stream; 0 on the others. Cluster is the ClusterID of the sender; 0: it is
// in none yet. The receiver refuses a connection that is not for it: two clusters whose addresses
// were mixed up must not exchange a single entry, and an empty disk must not answer for the one
// that it replaces.
//
// The answer to a hello stream says who the receiver is. On the others a verdict follows the
// version and the proofs (verdict.go).
//
// The magic is "LKPR", or "LKPS" if the sender goes on to prove that it knows the secret of the
// cluster (proof.go). With TLS all of this is inside of it; the first byte tells which it is.
const (
	prefaceMagic = "LKPR"
	provingMagic = "LKPS"
	prefaceLen   = 32

	// PrefaceTimeout bounds all that comes before the first frame: the handshake of TLS, the
	// preface and the proof; and the answer to a hello.
	PrefaceTimeout = 5 * time.Second
)

// preface is the sender of a connection in its own words.
type preface struct {
	proves   bool // it goes on to prove that it knows the secret
	version  uint8
	kind     StreamKind
	from, to MemberID
	fromDisk DiskID
	toDisk   DiskID // 0: any
	cluster  ClusterID
}

// sender is who opened the connection.
func (f preface) sender() Identity { return Identity{f.from, f.fromDisk, f.cluster} }

func (f preface) append(b []byte) []byte {
	magic := prefaceMagic
	if f.proves {
		magic = provingMagic
	}
	b = append(append(b, magic...), f.version, byte(f.kind), byte(f.from), byte(f.to))
	b = binary.BigEndian.AppendUint64(b, uint64(f.fromDisk))
	b = binary.BigEndian.AppendUint64(b, uint64(f.toDisk))
	return binary.BigEndian.AppendUint64(b, uint64(f.cluster))
}

func parsePreface(b [prefaceLen]byte) (f preface, ok bool) {
	f = preface{version: b[4], kind: StreamKind(b[5]), from: MemberID(b[6]), to: MemberID(b[7]),
		fromDisk: DiskID(binary.BigEndian.Uint64(b[8:])), toDisk: DiskID(binary.BigEndian.Uint64(b[16:])),
		cluster: ClusterID(binary.BigEndian.Uint64(b[24:]))}
	switch string(b[:4]) {
	case prefaceMagic:
		return f, true
	case provingMagic:
		f.proves = true
		return f, true
	}
	return f, false
}

// rejection is why a connection is refused, for the log.
type rejection string

func (r rejection) Error() string { return "peer: " + string(r) }

// welcome has the sender of a connection say and prove who it is, within PrefaceTimeout and in a
// bounded number of bytes. C is in, or TLS on it. Errors: a rejection, those of the connection.
func (p *Port) welcome(in *inbound) (c net.Conn, f preface, err error) {
	_ = in.SetDeadline(time.Now().Add(PrefaceTimeout))
	in.allowed = prefaceLen + nonceLen + proofLen
	c, err = p.acceptTLS(in)
	if err == nil {
		f, err = p.receivePreface(in, c)
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		p.late.Add(1)
	}
	if err != nil {
		return nil, f, err
	}
	in.allowed = -1
	_ = in.SetDeadline(time.Time{})
	return c, f, nil
}

func (p *Port) receivePreface(in *inbound, c net.Conn) (f preface, err error) {
	var b [prefaceLen]byte
	if _, err := io.ReadFull(c, b[:]); err != nil {
		return f, err
	}
	f, ok := parsePreface(b)
	if !ok {
		return f, rejection("it does not speak lockkeeper's peer protocol")
	}
	if err := p.answerPreface(in, c, f); err != nil {
		return f, err
	}
	switch {
	case f.to != p.cfg.ID:
		return f, rejection(fmt.Sprintf("member %d took this address for that of member %d: compare the server "+
			"lines of both", f.from, f.to))
	case f.from == p.cfg.ID:
		return f, rejection(fmt.Sprintf("it says it is member %d, which is this one", f.from))
	}
	return f, p.checkCertificate(c, f.from)
}

// answerPreface answers with the version, and has the sender prove that it knows the secret.
func (p *Port) answerPreface(in *inbound, c net.Conn, f preface) error {
	secrets := p.secrets()
	if !f.proves && len(secrets) > 0 && !p.cfg.Auth.SecretOptional {
		p.unproven.Add(1)
		return rejection(fmt.Sprintf("it says it is member %d, and does not prove that it knows the secret "+
			"(peer.secretFile)", f.from))
	}
	answer := []byte{p.cfg.Version}
	var ch challenge
	if f.proves {
		if len(secrets) == 0 {
			return rejection(fmt.Sprintf("member %d wants to prove that it knows a secret, and this member has none "+
				"(peer.secretFile)", f.from))
		}
		if _, err := io.ReadFull(c, ch.dialer[:]); err != nil {
			return err
		}
		if err := ch.bind(c); err != nil {
			return err
		}
		ch.acceptor = newNonce()
		ch.said = append(f.append(nil), p.cfg.Version)
		answer = append(answer, ch.acceptor[:]...)
	}
	if _, err := c.Write(answer); err != nil {
		return err
	}
	if err := p.checkVersion(f.from, f.version); err != nil {
		return rejection(err.Error())
	}
	if !f.proves {
		return nil
	}
	known, err := ch.verify(c, byDialer, secrets)
	if errors.Is(err, errProof) {
		p.unproven.Add(1)
		return rejection(fmt.Sprintf("it says it is member %d, and does not know the secret (peer.secretFile): "+
			"compare the files of both", f.from))
	} else if err != nil {
		return err
	}
	p.conns.provedWith(in, known)
	_, err = c.Write(ch.proof(byAcceptor, known))
	return err
}

// introduce says to a member at the other end of raw, which is at host, who this one is, and what
// the stream carries, proves it, and has the other end prove it. C is raw, or TLS on it. Errors:
// errUnanswered, ErrVersion, errProof, those of ctx, TLS and the connection.
func (p *Port) introduce(ctx context.Context, raw net.Conn, host string, f preface,
	secrets []secret) (c net.Conn, err error) {
	_ = raw.SetDeadline(time.Now().Add(PrefaceTimeout))
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	if c, err = p.dialTLS(raw, host); err != nil {
		err = fmt.Errorf("%w: %w", errTLS, err)
	} else {
		err = p.sendPreface(raw, c, f, secrets)
	}
	if !stop() {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	_ = raw.SetDeadline(time.Time{})
	return c, nil
}

func (p *Port) sendPreface(raw, c net.Conn, f preface, secrets []secret) error {
	b := f.append(nil)
	var ch challenge
	if f.proves {
		if err := ch.bind(c); err != nil {
			return err
		}
		ch.dialer = newNonce()
		b = append(b, ch.dialer[:]...)
	}
	if _, err := c.Write(b); err != nil {
		return err
	}
	version, err := p.awaitVersion(c, f.to)
	if err != nil || !f.proves {
		return err
	}
	if _, err := io.ReadFull(c, ch.acceptor[:]); err != nil {
		return err
	}
	ch.said = append(f.append(nil), version)
	if _, err := c.Write(ch.proof(byDialer, secrets[0])); err != nil {
		return err
	}
	known, err := ch.verify(c, byAcceptor, secrets)
	switch {
	case errors.Is(err, errProof):
		err = fmt.Errorf("%w: member %d does not know the secret", errProof, f.to)
	case errors.Is(err, io.EOF):
		err = fmt.Errorf("%w: member %d does not accept the secret", errProof, f.to)
	case err != nil:
		return err
	default:
		p.conns.provedWith(raw, known)
		return nil
	}
	p.log.Error(fmt.Sprintf("secret of member %d", f.to), "this member and another one cannot work together: compare "+
		"the files of peer.secretFile", "other", f.to, "err", err)
	return err
}

// awaitVersion reads the answer to a preface. Errors: errUnanswered, ErrVersion, those of the
// connection.
func (p *Port) awaitVersion(c net.Conn, to MemberID) (version uint8, err error) {
	var b [1]byte
	_, err = io.ReadFull(c, b[:])
	var timeout net.Error
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		return 0, err
	case err != nil:
		return 0, fmt.Errorf("%w by member %d: %w", errUnanswered, to, err)
	}
	p.versions.hear(to, b[0])
	if err := p.checkVersion(to, b[0]); err != nil {
		p.log.Error(fmt.Sprintf("version of member %d", to), "this member and another one cannot work together",
			"other", to, "err", err)
		return 0, err
	}
	return b[0], nil
}
