package recipes

import (
	"crypto/md5"
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"
)

// SASL is the scheme of an Auth that logs in with SASL, mechanism DIGEST-MD5,
// instead of showing its secret. The secret is "user:password".
const SASL = "sasl"

// The names that ZooKeeper's servers and clients have built in.
const (
	saslOp    = 102
	saslRealm = "zk-sasl-md5"
	saslURI   = "zookeeper/" + saslRealm
	// the errors of a login that fails: authFailed, and where SASL is required
	saslRequired = -124
)

// login logs in with SASL: it asks for a challenge, answers it, and checks that the
// server knows the password, too.
func (c *serverConn) login(a Auth) error {
	user, password, ok := strings.Cut(string(a.Secret), ":")
	if !ok {
		return c.refuse(a, errors.New("the secret is not user:password"))
	}
	challenge, err := c.saslStep(a, nil)
	if err != nil {
		return err
	}
	response, proof, err := saslResponse(string(challenge), user, password, rand.Text())
	if err != nil {
		return c.refuse(a, err)
	}
	answer, err := c.saslStep(a, []byte(response))
	if err != nil {
		return err
	}
	if subtle.ConstantTimeCompare(answer, []byte(proof)) != 1 {
		return c.refuse(a, errors.New("the server does not know the password"))
	}
	return nil
}

// saslStep sends a token and returns the one in the answer. The frames are
//
//	length(4) xid(4) op(4) token(4+n)
//	length(4) xid(4) zxid(8) error(4) token(4+n)
func (c *serverConn) saslStep(a Auth, token []byte) ([]byte, error) {
	xid := int32(authXid)
	b := binary.BigEndian.AppendUint32(nil, uint32(12+len(token)))
	b = binary.BigEndian.AppendUint32(b, uint32(xid))
	b = binary.BigEndian.AppendUint32(b, saslOp)
	b = binary.BigEndian.AppendUint32(b, uint32(len(token)))
	if _, err := c.Conn.Write(append(b, token...)); err != nil {
		return nil, err
	}
	reply, err := readFrame(c.Conn)
	if err != nil {
		return nil, err
	}
	if len(reply) < 20 || int32(binary.BigEndian.Uint32(reply[4:])) != authXid {
		return nil, fmt.Errorf("recipes: %s answers a login with a frame of %d bytes that is no reply to it",
			c.address, len(reply))
	}
	switch code := int32(binary.BigEndian.Uint32(reply[16:])); {
	case code == authFailed, code == saslRequired:
		return nil, c.refuse(a, errors.New("wrong user or password"))
	case code != 0:
		return nil, fmt.Errorf("recipes: %s answers a login with error %d", c.address, code)
	case len(reply) < 24 || int(int32(binary.BigEndian.Uint32(reply[20:]))) != len(reply)-24:
		return nil, c.refuse(a, errors.New("the server does not log in with SASL, or the login has failed"))
	}
	return reply[24:], nil
}

// refuse ends the Session: no server will take this identity. why may be nil.
func (c *serverConn) refuse(a Auth, why error) error {
	err := fmt.Errorf("recipes: %s refuses the identity of scheme %q: %w", c.address, a.Scheme, zk.ErrAuthFailed)
	if why != nil {
		err = fmt.Errorf("%w: %w", err, why)
	}
	return c.end(err)
}

// saslResponse is the answer to a challenge, and what the server answers to it if
// it knows the password (RFC 2831).
func saslResponse(challenge, user, password, cnonce string) (response, proof string, err error) {
	_, nonce, ok := strings.Cut(challenge, `nonce="`)
	nonce, _, closed := strings.Cut(nonce, `"`)
	if !ok || !closed || strings.Contains(nonce, `\`) || !strings.Contains(challenge, `realm="`+saslRealm+`"`) {
		return "", "", errors.New("the challenge is none of ZooKeeper's")
	}
	const count = "00000001"
	hexed := func(parts ...string) string {
		sum := md5.Sum([]byte(strings.Join(parts, ":")))
		return hex.EncodeToString(sum[:])
	}
	ha1 := md5.Sum([]byte(saslEncode(user) + ":" + saslRealm + ":" + saslEncode(password)))
	a1 := hexed(string(ha1[:]), nonce, cnonce)
	digest := func(a2 string) string { return hexed(a1, nonce, count, cnonce, "auth", hexed(a2)) }
	response = fmt.Sprintf(`charset=utf-8,username="%s",realm="%s",nonce="%s",nc=%s,cnonce="%s",digest-uri="%s",response=%s,qop=auth`,
		strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(user), saslRealm, nonce, count, cnonce, saslURI,
		digest("AUTHENTICATE:"+saslURI))
	return response, "rspauth=" + digest(":"+saslURI), nil
}

// saslEncode is a text in ISO 8859-1 if that has all of its characters, else in
// UTF-8: as the RFC has it hashed.
func saslEncode(text string) string {
	b := make([]byte, 0, len(text))
	for _, r := range text {
		if r > 0xff {
			return text
		}
		b = append(b, byte(r))
	}
	return string(b)
}
