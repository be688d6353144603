package znode

import (
	"fmt"
	"strings"

	"lockkeeper/wire"
)

// This file is the model's quotas, computed from nothing each time.

func (m *model) hasQuota(path string) bool {
	return path != "" && m.has("/zookeeper/quota"+path+"/zookeeper_limits")
}

// quotaFor is the deepest path at or above path that has a quota, "" for none.
func (m *model) quotaFor(path string) string {
	if path == "/zookeeper/quota" || strings.HasPrefix(path, "/zookeeper/quota/") {
		return ""
	}
	for ; path != "" && path != "/"; path = up(path) {
		if m.hasQuota(path) {
			return path
		}
	}
	return ""
}

func (m *model) usage(quota string) (count, size int) {
	for p, n := range m.nodes {
		if p != quota && !strings.HasPrefix(p, quota+"/") {
			continue
		}
		// Without limits there is no quota yet; then all counts that no deeper one takes.
		if q := m.quotaFor(p); q == quota || len(q) < len(quota) && !strings.HasPrefix(p+"/", "/zookeeper/quota/") {
			count++
			size += len(n.data)
		}
	}
	return count, size
}

func (m *model) usageText(quota string) []byte {
	count, size := m.usage(quota)
	return fmt.Appendf(nil, "count=%d,bytes=%d", count, size)
}

func (m *model) touch(path string) {
	if q := m.quotaFor(path); q != "" {
		m.touched[q] = true
	}
}

// moveQuota does change, which creates or deletes the node at path, and notes the quota
// with the usage that moves if the node is the limits of a quota.
func (m *model) moveQuota(path string, change func()) {
	quota, ok := strings.CutSuffix(path, "/zookeeper_limits")
	quota, under := strings.CutPrefix(quota, "/zookeeper/quota")
	if !ok || !under || quota == "" {
		change()
		return
	}
	if !m.has(path) { // it begins: all that it counts moves to it
		if count, _ := m.usage(quota); count > 0 && up(quota) != "" {
			m.touch(up(quota))
		}
		change()
		m.touched[quota] = true
		return
	}
	count, _ := m.usage(quota)
	change()
	if count > 0 && up(quota) != "" {
		m.touch(up(quota))
	}
}

// quotaCode is the answer of the quota to more nodes and bytes, for the limits that the
// test uses.
func (m *model) quotaCode(path string, count, size int) wire.Code {
	q := m.quotaFor(path)
	if m.flags&EnforceQuota == 0 || q == "" {
		return wire.CodeOK
	}
	text := string(m.nodes["/zookeeper/quota"+q+"/zookeeper_limits"].data)
	if text == "garbage" || m.nodes["/zookeeper/quota"+q+"/zookeeper_limits"].data == nil {
		return wire.CodeMarshallingError
	}
	if !m.has("/zookeeper/quota" + q + "/zookeeper_stats") {
		return wire.CodeOK
	}
	usedCount, usedSize := m.usage(q)
	var maxCount, maxSize int
	switch {
	case count != 0 && scan(text, "countHardLimit=%d", &maxCount) && usedCount+count > maxCount:
		return wire.CodeQuotaExceeded
	case size != 0 && scan(text, "byteHardLimit=%d", &maxSize) && usedSize+size > maxSize:
		return wire.CodeQuotaExceeded
	}
	return wire.CodeOK
}

func scan(text, format string, v *int) bool {
	n, _ := fmt.Sscanf(text, format, v)
	return n == 1
}
