"""Write the spread over fine-tuning seeds of the table of every method of one benchmark."""

from job import main
from seeds import run

if __name__ == "__main__":
    main(run)
