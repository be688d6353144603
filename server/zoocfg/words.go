package zoocfg

import (
	"slices"
	"strings"
)

// fourLetterWords are those that ZooKeeper knows, and mbrs.
var fourLetterWords = []string{
	"conf", "cons", "crst", "dirs", "dump", "envi", "gtmk", "hash", "isro", "mbrs", "mntr", "ruok",
	"srst", "srvr", "stat", "stmk", "wchc", "wchp", "wchs",
}

// FourLetterWords are the words that 4lw.commands.whitelist may have, in alphabetical order.
func FourLetterWords() []string { return slices.Clone(fourLetterWords) }

// IsFourLetterWord reports whether there is a four-letter word of that name.
func IsFourLetterWord(w string) bool { return slices.Contains(fourLetterWords, w) }

// parseWhitelist reads the words of 4lw.commands.whitelist. The result is never nil: an empty list
// allows nothing.
func parseWhitelist(s string) []string {
	words := []string{}
	for w := range strings.SplitSeq(s, ",") {
		if w = strings.TrimSpace(w); w != "" {
			words = append(words, w)
		}
	}
	return words
}

// AllowsWord reports whether a four-letter word may be answered. As in ZooKeeper two words are
// always answered: zkServer.sh status needs srvr, and a client that is served read-only looks with
// isro for a server that is not. 'lockkeeper cluster list' needs mbrs.
func (c *Config) AllowsWord(word string) bool {
	if word == "srvr" || word == "mbrs" || word == "isro" && c.ReadOnlyMode {
		return true
	}
	return slices.Contains(c.FourLetterWords, word) || slices.Contains(c.FourLetterWords, "*")
}
