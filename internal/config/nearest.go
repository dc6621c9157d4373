package config

import "strings"

// nearest returns the name that was most likely meant, or nothing. Names that
// differ by few letters come first, then those that begin alike.
func nearest(given string, names []string) string {
	best, least := "", max(2, len(given)/4)+1
	for _, name := range names {
		if d := distance(strings.ToLower(given), strings.ToLower(name)); d < least {
			best, least = name, d
		}
	}
	if best != "" || len(given) < 4 {
		return best
	}
	for _, name := range names {
		if strings.HasPrefix(strings.ToLower(name), strings.ToLower(given)) {
			return name
		}
	}
	return ""
}

// distance counts the letters to insert, remove or replace, and the neighbours
// to swap, between two words.
func distance(a, b string) int {
	if len(a) > 100 || len(b) > 100 {
		return 100 // no name is that long
	}
	older, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], older[j-2]+1)
			}
		}
		older, last = last, row
	}
	return last[len(b)]
}
