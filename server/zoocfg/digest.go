package zoocfg

import (
	"cmp"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha3"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"lockkeeper/session"
)

// validDigest reports whether s has the form user:BASE64(size bytes).
func validDigest(s string, size int) bool {
	user, hash, ok := strings.Cut(s, ":")
	sum, err := base64.StdEncoding.DecodeString(hash)
	return ok && user != "" && err == nil && len(sum) == size
}

// digestHashes are the hashes that digest identities may be made with, by the names that Java has
// for them.
var digestHashes = map[string]func() hash.Hash{
	"MD5": md5.New, "SHA": sha1.New, "SHA1": sha1.New, "SHA-1": sha1.New,
	"SHA-224": sha256.New224, "SHA-256": sha256.New, "SHA-384": sha512.New384, "SHA-512": sha512.New,
	"SHA-512/224": sha512.New512_224, "SHA-512/256": sha512.New512_256,
	"SHA3-224": func() hash.Hash { return sha3.New224() }, "SHA3-256": func() hash.Hash { return sha3.New256() },
	"SHA3-384": func() hash.Hash { return sha3.New384() }, "SHA3-512": func() hash.Hash { return sha3.New512() },
}

// DigestHash is the hash of that name, nil if there is none.
func DigestHash(name string) func() hash.Hash { return digestHashes[strings.ToUpper(name)] }

// Digest returns the digest identity of a user with a password, as
// user:BASE64(hash(user:password)): what DigestAuthenticationProvider.superDigest needs, and what
// an ACL of scheme digest names. The algorithm is one of DigestAuthenticationProvider.digestAlg;
// empty means SHA1. A user without a name or with a colon in it, and a password that is empty or no
// UTF-8, cannot log in, and are errors.
func Digest(algorithm, user, password string) (string, error) {
	newHash := DigestHash(cmp.Or(algorithm, "SHA1"))
	switch {
	case newHash == nil:
		return "", fmt.Errorf("zoocfg: algorithm %q is none of %s", algorithm, digestNames())
	case user == "" || strings.Contains(user, ":"):
		return "", fmt.Errorf("zoocfg: user %q must have a name without a colon", user)
	case password == "":
		return "", errors.New("zoocfg: the password is empty")
	case !utf8.ValidString(user) || !utf8.ValidString(password):
		return "", errors.New("zoocfg: user and password must be UTF-8")
	}
	return session.DigestID(newHash, user+":"+password), nil
}

func digestNames() string { return strings.Join(slices.Sorted(maps.Keys(digestHashes)), ", ") }
