package ops

import (
	"math"
	"strconv"
	"strings"
)

// JavaDouble writes a number as Java does, rounded to four decimals: there is always a decimal
// point.
func JavaDouble(f float64) string { return JavaDecimal(math.Round(f*10000) / 10000) }

// JavaDecimal writes a number as Java does, but for very small and large ones.
func JavaDecimal(f float64) string {
	text := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}
