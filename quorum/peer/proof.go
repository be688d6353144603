package peer

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"
)

// Members that have a secret prove to each other that they know it, before the first frame of a
// connection. D is the member that has dialled, A the one that has accepted:
//
//	D -> A   preface (12 bytes, magic "LKPS"), D's nonce (32)
//	A -> D   version (1), A's nonce (32)
//	D -> A   HMAC-SHA-256(secret, label, 'D', preface, version, D's nonce, A's nonce)
//	A -> D   HMAC-SHA-256(secret, label, 'A', preface, version, D's nonce, A's nonce)
//
// With TLS the key material of the connection follows the nonces in the HMAC (RFC 5705), so that
// a machine between two members, with a certificate that both take, cannot pass a proof on.
//
// Both nonces are new for each connection, so an old proof is worth nothing; the letter keeps a
// proof from being sent back to its maker; the preface has the ids of both, the kind of the stream,
// the cluster, and the version, so that none of them can be changed on the way. The member that
// dials proves first: a program that merely reaches a port gets no proof from it on which to try
// out secrets.
//
// The secret proves which member is at the other end when the connection begins. It does not
// encrypt the stream, nor keep it from being changed on the way: TLS does.
const (
	nonceLen = 32
	proofLen = sha256.Size

	proofLabel   = "lockkeeper: proof between members, 1"
	channelLabel = "EXPORTER-lockkeeper-proof-between-members"
)

// MinSecretBytes is the least length of a secret.
const MinSecretBytes = 32

// secretPeriod is how often the port looks whether the secrets have changed. It does so with each
// new connection, too.
const secretPeriod = 2 * time.Second

type (
	secret = []byte
	nonce  = [nonceLen]byte
)

// Auth says how members prove to each other who they are. The zero value has them prove nothing.
type Auth struct {
	// Secrets returns the secrets of the cluster, each at least MinSecretBytes long. A
	// member proves that it knows the first, and accepts a proof with any. It may return others
	// later: connections that were proved with one that is not among them then end. nil: there is
	// none. It is called from several goroutines, for each connection.
	Secrets func() [][]byte
	// SecretOptional accepts connections without a proof, and opens such ones to members that know
	// no secret. It is for a cluster whose members are given a secret one by one.
	SecretOptional bool
	// TLS encrypts the connections; nil: they are plain.
	TLS *TLS
}

// AuthStats counts proofs at a peer port.
type AuthStats struct {
	Unproved int   // open connections that have not said, or not proved, who they are
	Refused  int64 // connections without a proof that was due, or with a wrong one, or certificate
	Late     int64 // connections that took too long to say and prove who they are
}

// Proves reports whether a connection of a program that is no member is refused: by a secret that
// is required, or by the certificates of TLS.
func (a *Auth) Proves() bool {
	return a.Secrets != nil && !a.SecretOptional || a.TLS != nil && a.TLS.Certificates && !a.TLS.Plain
}

var errProof = errors.New("peer: the proof of the secret has failed")

// Whose proof it is.
const (
	byDialer   byte = 'D'
	byAcceptor byte = 'A'
)

// challenge is the content that a proof covers.
type challenge struct {
	said             []byte // the preface, and the version in the answer to it
	channel          []byte // key material of TLS; nil without it
	dialer, acceptor nonce
}

func newNonce() (n nonce) {
	_, _ = rand.Read(n[:]) // it never fails
	return n
}

// bind has the proof be about the connection, if that is one of TLS.
func (ch *challenge) bind(c net.Conn) (err error) {
	if secured, ok := c.(*tls.Conn); ok {
		state := secured.ConnectionState()
		ch.channel, err = state.ExportKeyingMaterial(channelLabel, nil, sha256.Size)
	}
	return err
}

func (ch *challenge) proof(by byte, s secret) []byte {
	m := hmac.New(sha256.New, s)
	m.Write([]byte(proofLabel))
	m.Write([]byte{by})
	m.Write(ch.said)
	m.Write(ch.dialer[:])
	m.Write(ch.acceptor[:])
	m.Write(ch.channel)
	return m.Sum(nil)
}

// verify reads a proof, and returns the secret that it was made with. Errors: errProof, those of
// the connection.
func (ch *challenge) verify(c net.Conn, by byte, secrets []secret) (secret, error) {
	var got [proofLen]byte
	if _, err := io.ReadFull(c, got[:]); err != nil {
		return nil, err
	}
	var known secret
	for _, s := range secrets {
		if hmac.Equal(got[:], ch.proof(by, s)) {
			known = s
		}
	}
	if known == nil {
		return nil, errProof
	}
	return known, nil
}

// secrets are those that count now; none if the members have no secret.
func (p *Port) secrets() []secret {
	if p.cfg.Auth.Secrets == nil {
		return nil
	}
	return p.cfg.Auth.Secrets()
}

// secretLoop ends the connections that were proved with a secret that does not count any more.
func (p *Port) secretLoop() {
	tick := time.NewTicker(secretPeriod)
	defer tick.Stop()
	for {
		select {
		case <-p.done:
			return
		case <-tick.C:
			p.conns.endDropped(p.secrets())
		}
	}
}
