package server

import (
	"encoding/binary"
	"fmt"
	"io"
	"strconv"
	"time"
)

// listingWords are the four-letter words that are answered by listings.
var listingWords = map[string]bool{"cons": true, "dump": true, "stat": true, "wchc": true, "wchp": true}

// anyTime are the four-letter words that are answered in any state; the others are while this
// member serves clients.
var anyTime = map[string]bool{"envi": true, "mbrs": true, "gtmk": true, "isro": true, "ruok": true, "stmk": true}

const notServing = "This ZooKeeper instance is not currently serving requests\n"

// answerWord answers a four-letter word and ends the connection. The answer is sent in one piece,
// because kazoo reads only once, and what the client still sends is read before the end, because
// otherwise TCP might drop the answer (docs/protocol/admin.md section 1).
func (s *Server) answerWord(c *conn, word string) {
	c.parting.Store(true)
	s.counters.wordsReceived.Add(1)
	s.counters.bytesReceived.Add(4)
	s.log.Debug("four-letter word", "client", c.remote, "word", word)
	if listingWords[word] {
		select {
		case s.listings <- struct{}{}:
			defer func() { <-s.listings }()
		case <-time.After(farewellTimeout):
			return // other clients do not read their listings
		}
	}
	answer := s.wordText(c, word)
	s.counters.wordsSent.Add(1)
	_ = c.SetWriteDeadline(time.Now().Add(farewellTimeout))
	if _, err := c.Write([]byte(answer)); err != nil {
		return
	}
	c.part()
}

func (s *Server) wordText(c *conn, word string) string {
	switch {
	case !s.cfg.AllowsWord(word):
		return word + " is not executed because it is not in the whitelist.\n"
	case !anyTime[word] && !s.Serving() && !s.sessions.ReadOnly():
		return notServing
	}
	switch word {
	case "ruok":
		return "imok"
	case "isro":
		switch {
		case s.Serving():
			return "rw"
		case s.sessions.ReadOnly():
			return "ro"
		}
		return "null"
	case "srvr":
		return s.srvrText(s.overview(), "")
	case "stat":
		return s.srvrText(s.overview(), s.clientsText(c))
	case "cons":
		return s.consText(c)
	case "conf":
		return s.confText()
	case "mntr":
		return s.mntrText(s.overview())
	case "mbrs":
		return s.membersText()
	case "dirs":
		dirs, logs := s.dirSizes()
		return fmt.Sprintf("datadir_size: %d\nlogdir_size: %d\n", dirs, logs)
	case "wchs":
		w := s.sessions.Stats().Watches
		return fmt.Sprintf("%d connections watching %d paths\nTotal watches:%d\n", w.Connections, w.Paths, w.DataWatches)
	case "wchc":
		return s.wchcText()
	case "wchp":
		return s.wchpText()
	case "dump":
		return s.dumpText()
	case "hash":
		return s.hashText()
	case "envi":
		return s.enviText()
	case "gtmk":
		return strconv.FormatInt(s.traceMask.Load(), 10)
	case "stmk":
		return s.setTraceMask(c)
	case "crst":
		for _, c := range s.port.list() {
			if sess := c.session.Load(); sess != nil {
				sess.ResetStats()
			}
		}
		return "Connection stats reset.\n"
	case "srst":
		s.sessions.ResetStats()
		s.counters.reset()
		return "Server stats reset.\n"
	}
	// zoocfg.FourLetterWords has only words with an answer.
	panic("server: no answer to the four-letter word " + word)
}

// defaultTraceMask is ZooKeeper's, where the mask chooses what is written to the trace log. Here it
// is kept for the tools that set it, and has no effect.
const defaultTraceMask = 306

// setTraceMask reads the new trace mask, the eight bytes that follow stmk, and returns it.
func (s *Server) setTraceMask(c *conn) string {
	b := make([]byte, 8)
	if _, err := c.r.Discard(4); err != nil {
		return ""
	}
	if _, err := io.ReadFull(c.r, b); err != nil {
		return ""
	}
	mask := int64(binary.BigEndian.Uint64(b))
	s.traceMask.Store(mask)
	return strconv.FormatInt(mask, 10)
}
