package server

import (
	"slices"
	"strings"
)

// fourLetterWords are the words that ZooKeeper knows and that may stand in 4lw.commands.whitelist.
var fourLetterWords = strings.Fields("conf cons crst dirs dump envi gtmk hash isro mntr ruok srst srvr stat stmk wchc wchp wchs")

func isFourLetterWord(w string) bool { return slices.Contains(fourLetterWords, w) }

// parseWhitelist reads the words of 4lw.commands.whitelist. The result is never nil: an empty list allows
// nothing.
func parseWhitelist(s string) []string {
	words := []string{}
	for w := range strings.SplitSeq(s, ",") {
		if w = strings.TrimSpace(w); w != "" {
			words = append(words, w)
		}
	}
	return words
}
