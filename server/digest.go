package server

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha3"
	"crypto/sha512"
	"encoding/base64"
	"hash"
	"maps"
	"slices"
	"strings"
)

// validDigest reports whether s has the form user:BASE64(size bytes).
func validDigest(s string, size int) bool {
	user, hash, ok := strings.Cut(s, ":")
	sum, err := base64.StdEncoding.DecodeString(hash)
	return ok && user != "" && err == nil && len(sum) == size
}

// digestHashes are the hashes that digest identities may be made with, by the names that Java has for them.
var digestHashes = map[string]func() hash.Hash{
	"MD5": md5.New, "SHA": sha1.New, "SHA1": sha1.New, "SHA-1": sha1.New,
	"SHA-224": sha256.New224, "SHA-256": sha256.New, "SHA-384": sha512.New384, "SHA-512": sha512.New,
	"SHA-512/224": sha512.New512_224, "SHA-512/256": sha512.New512_256,
	"SHA3-224": func() hash.Hash { return sha3.New224() }, "SHA3-256": func() hash.Hash { return sha3.New256() },
	"SHA3-384": func() hash.Hash { return sha3.New384() }, "SHA3-512": func() hash.Hash { return sha3.New512() },
}

// digestHash is the hash of that name, nil if there is none.
func digestHash(name string) func() hash.Hash { return digestHashes[strings.ToUpper(name)] }

func digestNames() string { return strings.Join(slices.Sorted(maps.Keys(digestHashes)), ", ") }
