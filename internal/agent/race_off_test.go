//go:build !race

package agent

// weekDays is how long TestWeekOfRestarts lasts.
const weekDays = 7
