package report

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
)

// WriteFile makes a file of what write writes. When it returns without an error, nothing is missing.
func WriteFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	b := bufio.NewWriter(f)
	if err := errors.Join(write(b), b.Flush(), f.Close()); err != nil {
		return fmt.Errorf("report: %s: %w", name, err)
	}
	return nil
}
