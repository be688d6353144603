package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"lockkeeper/recipes"
)

// authVariable names the environment variable that stands for -auth.
const authVariable = "LOCKKEEPER_AUTH"

// digestScheme is the scheme of an identity that does not name one.
const digestScheme = "digest"

// authSchemes are the schemes that may precede a secret. Others would be taken for a
// user's name.
var authSchemes = []string{digestScheme, "key", "ensemble", "ip", "sasl", "x509"}

// parseAuth reads scheme:secret, or user:password for digest.
func parseAuth(text string) (recipes.Auth, error) {
	first, rest, found := strings.Cut(text, ":")
	if !found || first == "" {
		return recipes.Auth{}, errors.New("must be user:password, or scheme:secret")
	}
	scheme, secret := digestScheme, text
	if slices.Contains(authSchemes, first) {
		scheme, secret = first, rest
	}
	if scheme == digestScheme && !strings.Contains(secret, ":") {
		return recipes.Auth{}, errors.New("must be user:password, or scheme:secret")
	}
	return recipes.Auth{Scheme: scheme, Secret: []byte(secret)}, nil
}

// identity is who the command says it is: -auth, or the first line of -auth-file, or else the
// environment. ok is false if nobody is named. Errors do not contain the secret.
func (f *clientFlags) identity() (id recipes.Auth, ok bool, err error) {
	text, from := f.auth, "-auth"
	switch {
	case f.auth != "" && f.authFile != "":
		return id, false, errors.New("-auth and -auth-file: one of them, please")
	case f.auth != "":
	case f.authFile != "":
		from = "-auth-file"
		b, err := os.ReadFile(f.authFile)
		if err != nil {
			return id, false, fmt.Errorf("-auth-file: %w", err)
		}
		text, _, _ = strings.Cut(string(b), "\n")
		text = strings.TrimSuffix(text, "\r")
	default:
		if text, from = os.Getenv(authVariable), "$"+authVariable; text == "" {
			return id, false, nil
		}
	}
	if id, err = parseAuth(text); err != nil {
		return id, false, fmt.Errorf("%s: %w", from, err)
	}
	return id, true, nil
}
